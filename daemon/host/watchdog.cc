#include "daemon/host/watchdog.h"

#include <algorithm>
#include <utility>

#include "spdlog/spdlog.h"

namespace mrd::host {

using std::chrono::milliseconds;

Watchdog::Watchdog(sd_event* loop, std::chrono::microseconds timeout, Parts parts)
    // An answer is fed one time later.
    : every_(std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(timeout / 4))),
      parts_(std::move(parts)) {
  Ask();
  timer_ = ipc::OrDie({loop, every_, [this] { OnTime(); }}, "the watchdog");
}

void Watchdog::Ask() {
  answered_ = std::make_shared<std::atomic<bool>>(false);
  parts_.ping([answered = answered_] { *answered = true; });
}

void Watchdog::OnTime() {
  timer_.SetAgain(every_);
  if (*answered_) {
    if (unanswered_ > 1) {
      spdlog::warn("the gRPC side answers again, after {} ms", (unanswered_ * every_).count());
    }
    unanswered_ = 0;
    parts_.feed();
    Ask();
    return;
  }
  if (++unanswered_ == 2) {
    spdlog::error(
        "the gRPC side has not answered for {} ms: the watchdog of the service manager is not fed "
        "before it does",
        (unanswered_ * every_).count());
  }
}

}  // namespace mrd::host
