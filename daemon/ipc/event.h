// Sources of the main loop (sd-event). All of this belongs to the main thread.
#ifndef MRD_DAEMON_IPC_EVENT_H_
#define MRD_DAEMON_IPC_EVENT_H_

#include <systemd/sd-event.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace mrd::ipc {

// One event source; its callback runs in the main loop and may destroy it. Ends with this object.
// Empty (false) where sd-event or the kernel had no memory for it, or did not take the descriptor;
// that is logged. What it is for cannot go on then: a connection is closed, and at the start
// the daemon ends (OrDie).
class EventSource {
 public:
  EventSource() = default;
  // Calls back while any of `events` (EPOLLIN ...) holds on `fd`, which outlives it.
  EventSource(sd_event* loop, int fd, uint32_t events, std::function<void(uint32_t)> callback);
  // Calls back once, after this time.
  EventSource(sd_event* loop, std::chrono::milliseconds after, std::function<void()> callback);
  EventSource(EventSource&& other) noexcept;
  EventSource& operator=(EventSource&& other) noexcept;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  ~EventSource() { reset(); }

  // Of a timer, also in its own callback: calls back once more, after this time. Needs no memory.
  void SetAgain(std::chrono::milliseconds after);

  explicit operator bool() const { return source_ != nullptr; }
  void reset();
  void SetEnabled(bool enabled);

 private:
  struct Callback;

  void Take(int result, Callback* held);

  sd_event_source* source_ = nullptr;
};

// For what the daemon cannot be without: says what it was and aborts where `source` is empty.
EventSource OrDie(EventSource source, const char* what);

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_EVENT_H_
