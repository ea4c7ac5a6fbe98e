#include "daemon/fabric/event_loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "spdlog/spdlog.h"

namespace mrd::fabric {
namespace {

constexpr EventLoop::WatchId kWake = 0;

// What cannot fail but for a broken kernel or no descriptors at the daemon's start.
int CheckOrDie(const char* what, int result) {
  if (result >= 0) return result;
  fprintf(stderr, "mrd: %s: %s\n", what, strerror(errno));
  abort();
}

int Add(int epoll, int fd, EventLoop::WatchId id) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = id;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

EventLoop::EventLoop(const std::string& name)
    : epoll_(CheckOrDie("epoll_create1", epoll_create1(EPOLL_CLOEXEC))),
      wake_(CheckOrDie("eventfd", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  CheckOrDie("epoll_ctl", Add(epoll_, wake_, kWake));
  // The thread sees its own id in thread_ only after the assignment; what it runs comes by Post,
  // after it.
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

EventLoop::~EventLoop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
  close(epoll_);
}

void EventLoop::Post(Function function) {
  bool wake;
  {
    MutexLock lock(mutex_);
    wake = posted_.empty();
    posted_.push_back(std::move(function));
  }
  if (wake) eventfd_write(wake_, 1);
}

void EventLoop::RunSync(absl::FunctionRef<void()> function) {
  if (InLoop()) {
    function();
    return;
  }
  Mutex mutex;
  CondVar condition;
  bool done = false;
  Post([&] {
    function();
    MutexLock lock(mutex);
    done = true;
    // Under the lock: the waiter destroys both once it has seen `done`.
    condition.NotifyOne();
  });
  MutexLock lock(mutex);
  while (!done) condition.Wait(mutex);
}

EventLoop::WatchId EventLoop::Watch(int fd, Function readable) {
  const WatchId id = next_watch_++;
  if (Add(epoll_, fd, id) < 0) {
    spdlog::error("epoll_ctl: {}", strerror(errno));
    return 0;
  }
  watches_[id] = std::make_shared<Watched>(Watched{fd, std::move(readable)});
  return id;
}

void EventLoop::Unwatch(WatchId id) {
  const auto it = watches_.find(id);
  if (it == watches_.end()) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, it->second->fd, nullptr);
  watches_.erase(it);
}

EventLoop::TimerId EventLoop::At(Deadline at, Function function) {
  const TimerId id{at, next_timer_++};
  timers_.emplace(id, std::move(function));
  return id;
}

void EventLoop::Cancel(const TimerId& id) { timers_.erase(id); }

int EventLoop::TimeoutMs() const {
  if (timers_.empty()) return -1;
  const auto now = std::chrono::steady_clock::now();
  const auto at = timers_.begin()->first.at;
  if (at <= now) return 0;
  // Compared before the subtraction, which overflows for Deadline::max() on a clock that began
  // before the epoch.
  constexpr auto kLongest = std::chrono::hours(1);
  if (at >= now + kLongest) return std::chrono::milliseconds(kLongest).count();
  return std::chrono::ceil<std::chrono::milliseconds>(at - now).count();
}

void EventLoop::Run() {
  for (;;) {
    epoll_event events[64];
    const int count = epoll_wait(epoll_, events, std::size(events), TimeoutMs());
    if (count < 0 && errno != EINTR) CheckOrDie("epoll_wait", count);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kWake) {
        eventfd_t ignored;
        eventfd_read(wake_, &ignored);
        continue;
      }
      // An earlier callback of this round may have unwatched it.
      const auto it = watches_.find(events[i].data.u64);
      if (it == watches_.end()) continue;
      const std::shared_ptr<Watched> watched = it->second;  // It may unwatch itself.
      watched->readable();
    }
    RunTimers();
    RunPosted();
    MutexLock lock(mutex_);
    if (stop_ && posted_.empty()) return;
  }
}

void EventLoop::RunPosted() {
  std::vector<Function> posted;
  {
    MutexLock lock(mutex_);
    posted.swap(posted_);
  }
  for (Function& function : posted) {
    function();
    function = nullptr;  // What it holds ends now, not after all the others.
  }
}

void EventLoop::RunTimers() {
  const auto now = std::chrono::steady_clock::now();
  // A timer set by one that runs here is later in order; with `at` in the past it runs in this
  // round all the same.
  while (!timers_.empty() && timers_.begin()->first.at <= now) {
    Function function = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    function();
  }
}

}  // namespace mrd::fabric
