#include "daemon/ipc/lease_timer.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>

namespace mrd::ipc {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kForLong = std::chrono::hours(1);

}  // namespace

LeaseTimer::LeaseTimer(sd_event* loop, broker::Broker& broker)
    : broker_(broker),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      woken_(OrDie({loop, wake_.get(), EPOLLIN,
                    [this](uint32_t) {
                      eventfd_t count;
                      eventfd_read(wake_.get(), &count);
                      Run();
                    }},
                   "the lease clock")),
      timer_(OrDie({loop, kForLong, [this] { Run(); }}, "the lease clock")) {
  broker_.lease_clock().SetWake([fd = wake_.get()] { eventfd_write(fd, 1); });
}

void LeaseTimer::Run() {
  const auto next = broker_.EndLapsed(std::chrono::steady_clock::now());
  if (!next) return timer_.SetAgain(kForLong);
  const auto wait = std::chrono::ceil<milliseconds>(*next - std::chrono::steady_clock::now());
  timer_.SetAgain(std::clamp(wait, milliseconds(0), kForLong));
}

}  // namespace mrd::ipc
