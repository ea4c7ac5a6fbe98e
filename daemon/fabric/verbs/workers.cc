#include "daemon/fabric/verbs/workers.h"

#include <pthread.h>

#include <utility>

namespace mrd::fabric::verbs {

Workers::~Workers() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void Workers::Post(Function function) {
  MutexLock lock(mutex_);
  posted_.push_back(std::move(function));
  if (posted_.size() > idle_ && threads_.size() < max_threads_) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), name_.c_str());
  }
  changed_.NotifyOne();
}

void Workers::Run() {
  for (;;) {
    Function function;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (posted_.empty() && !stop_) changed_.Wait(mutex_);
      --idle_;
      if (posted_.empty()) return;
      function = std::move(posted_.front());
      posted_.pop_front();
    }
    function();
  }
}

}  // namespace mrd::fabric::verbs
