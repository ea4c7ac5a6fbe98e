#include "daemon/ipc/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utility>

#include "spdlog/spdlog.h"

namespace mrd::ipc {

// Held by sd-event as userdata. A callback may destroy its EventSource: the function object lives
// until sd-event drops the source, which is after the dispatch.
struct EventSource::Callback {
  std::function<void(uint32_t)> function;

  static int OnIo(sd_event_source*, int, uint32_t events, void* self) {
    static_cast<Callback*>(self)->function(events);
    return 0;
  }
  static int OnTime(sd_event_source*, uint64_t, void* self) {
    static_cast<Callback*>(self)->function(0);
    return 0;
  }
  static void OnDestroy(void* self) { delete static_cast<Callback*>(self); }
};

EventSource::EventSource(sd_event* loop, int fd, uint32_t events,
                         std::function<void(uint32_t)> callback) {
  auto* held = new Callback{std::move(callback)};
  Take(sd_event_add_io(loop, &source_, fd, events, &Callback::OnIo, held), held);
}

EventSource::EventSource(sd_event* loop, std::chrono::milliseconds after,
                         std::function<void()> callback) {
  auto* held = new Callback{[function = std::move(callback)](uint32_t) { function(); }};
  const uint64_t usec = std::chrono::microseconds(after).count();
  Take(
      sd_event_add_time_relative(loop, &source_, CLOCK_MONOTONIC, usec, 0, &Callback::OnTime, held),
      held);
}

void EventSource::Take(int result, Callback* held) {
  if (result < 0) {
    source_ = nullptr;
    delete held;
    spdlog::error("an event source: {}", strerror(-result));
    return;
  }
  sd_event_source_set_destroy_callback(source_, &Callback::OnDestroy);
}

EventSource::EventSource(EventSource&& other) noexcept
    : source_(std::exchange(other.source_, nullptr)) {}

EventSource& EventSource::operator=(EventSource&& other) noexcept {
  if (this != &other) {
    reset();
    source_ = std::exchange(other.source_, nullptr);
  }
  return *this;
}

void EventSource::reset() {
  if (!source_) return;
  sd_event_source_set_enabled(source_, SD_EVENT_OFF);
  sd_event_source_unref(std::exchange(source_, nullptr));
}

void EventSource::SetAgain(std::chrono::milliseconds after) {
  if (!source_) return;
  sd_event_source_set_time_relative(source_, std::chrono::microseconds(after).count());
  sd_event_source_set_enabled(source_, SD_EVENT_ONESHOT);
}

EventSource OrDie(EventSource source, const char* what) {
  if (source) return source;
  fprintf(stderr, "mrd: no event source for %s\n", what);
  abort();
}

void EventSource::SetEnabled(bool enabled) {
  if (source_) sd_event_source_set_enabled(source_, enabled ? SD_EVENT_ON : SD_EVENT_OFF);
}

}  // namespace mrd::ipc
