#include "daemon/host/hotplug.h"

#include <errno.h>
#include <sys/epoll.h>

#include <chrono>
#include <utility>

#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::host {
namespace {

// After an event, once more: a device's node gets its owner and mode from the udev daemon, and its
// addresses from a work queue of the kernel's, a moment after the event.
constexpr std::chrono::seconds kAgain{1};
// Without events.
constexpr std::chrono::seconds kPoll{5};

}  // namespace

HotPlug::HotPlug(sd_event* loop, fabric::verbs::Api& api, std::function<void()> look)
    : api_(api), look_(std::move(look)) {
  const auto opened = api_.OpenUevents();
  if (opened.ok()) {
    uevents_ = ipc::EventSource(loop, opened.value, EPOLLIN, [this](uint32_t) { OnReadable(); });
  }
  polls_ = !uevents_;
  if (polls_) {
    spdlog::warn("no uevents of the kernel ({}): devices that come or go are seen within {} s",
                 ErrnoName(opened.error), kPoll.count());
  }
  // The first time in any case: what came or went before the events were heard.
  again_ = ipc::OrDie({loop, kAgain, [this] { OnTime(); }}, "hot-plug");
}

void HotPlug::OnTime() {
  look_();
  if (polls_) again_.SetAgain(kPoll);
}

void HotPlug::OnReadable() {
  // A bound, so that a flood of events does not keep the loop from everything else; what is left
  // makes the loop call again.
  constexpr int kMost = 256;
  for (int i = 0; i < kMost; ++i) {
    const auto event = api_.ReadUevent();
    if (event.ok()) {
      spdlog::debug("uevent: {} {}", event.value.action, event.value.name);
      continue;
    }
    if (event.error == ENOBUFS) {
      spdlog::warn("uevents were lost: looking at all devices anew");
      continue;
    }
    if (event.error != EAGAIN && event.error != EINTR) {
      spdlog::error("uevents cannot be read ({}): looking every {} s from now on",
                    ErrnoName(event.error), kPoll.count());
      polls_ = true;
      uevents_.reset();
    }
    break;
  }
  look_();
  again_.SetAgain(polls_ ? kPoll : kAgain);
}

}  // namespace mrd::host
