#include "daemon/host/metrics/page.h"

#include <utility>

namespace mrd::host {

Page::Page(std::function<std::string()> render)
    : render_(std::move(render)), thread_([this] { Run(); }) {}

Page::~Page() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

Page::Text Page::Get() {
  {
    MutexLock lock(mutex_);
    while (making_) changed_.Wait(mutex_);
    if (text_ && Clock::now() - made_ < kFresh) return text_;
    making_ = true;
  }
  auto text = std::make_shared<const std::string>(render_());
  MutexLock lock(mutex_);
  text_ = text;
  made_ = Clock::now();
  making_ = false;
  changed_.NotifyAll();
  return text;
}

void Page::Ask(Done done) {
  MutexLock lock(mutex_);
  asked_.push_back(std::move(done));
  changed_.NotifyAll();
}

void Page::Run() {
  for (;;) {
    std::vector<Done> asked;
    {
      MutexLock lock(mutex_);
      while (asked_.empty() && !ending_) changed_.Wait(mutex_);
      if (asked_.empty()) return;
      asked.swap(asked_);
    }
    const Text text = Get();
    for (const Done& done : asked) done(text);
  }
}

}  // namespace mrd::host
