#include "client/populate.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace mrd::internal {
namespace {

// A signal or a debugger gets at a thread between two of these.
constexpr uint64_t kStep = uint64_t{64} << 20;
constexpr uint64_t kWorthAThread = uint64_t{256} << 20;
// Beyond this it is memory's bandwidth that is short.
constexpr unsigned kMostThreads = 8;

class Work {
 public:
  Work(void* data, uint64_t size) : data_(static_cast<char*>(data)), size_(size) {}

  void Do() {
    while (error_ == 0) {
      const uint64_t at = next_.fetch_add(kStep);
      if (at >= size_) return;
      const uint64_t length = std::min(kStep, size_ - at);
      while (madvise(data_ + at, length, MADV_POPULATE_WRITE) != 0) {
        if (errno == EINTR || errno == EAGAIN) continue;
        error_ = errno;
        return;
      }
    }
  }
  int error() const { return error_; }

 private:
  char* const data_;
  const uint64_t size_;
  std::atomic<uint64_t> next_ = 0;
  std::atomic<int> error_ = 0;
};

}  // namespace

int Populate(void* data, uint64_t size) {
  Work work(data, size);
  const uint64_t threads =
      std::min<uint64_t>({size / kWorthAThread, std::thread::hardware_concurrency(), kMostThreads});
  std::vector<std::thread> others;
  // The process's signal handlers are not to run on threads that it knows nothing of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (uint64_t i = 1; i < threads; ++i) others.emplace_back([&work] { work.Do(); });
  } catch (const std::system_error&) {
    // As many as the process may have.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  work.Do();
  for (std::thread& other : others) other.join();
  return work.error();
}

}  // namespace mrd::internal
