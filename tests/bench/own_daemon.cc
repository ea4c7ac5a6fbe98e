#include "tests/bench/own_daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>

#include "daemon/daemon.h"
#include "daemon/fabric/verbs/api_real.h"
#include "tests/bench/die.h"
#include "tests/fake/fake_verbs.h"

namespace mrd::bench {
namespace {

constexpr size_t kMostCalls = 4 << 20;

struct Entry {
  size_t request;  // A hash of its name.
  double seconds;
};

int RunIn(const std::string& socket_dir, OwnFabric fabric, CallTimes* times) {
  Options options;
  options.sockets.dir = socket_dir;
  options.fabric = fabric == OwnFabric::kSoft ? "soft" : "verbs";
  options.log_level = spdlog::level::err;
  options.server.observe = [times](const std::string& request, std::chrono::nanoseconds took) {
    times->Add(request, std::chrono::duration<double>(took).count());
  };
  if (fabric == OwnFabric::kVerbs) return RunDaemon(options, *fabric::verbs::MakeRealApi());
  fake::FakeVerbs fake;
  return RunDaemon(options, fake);
}

}  // namespace

struct CallTimes::Shared {
  std::atomic<size_t> count;
  Entry entries[kMostCalls];
};

CallTimes::CallTimes()
    : shared_(static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (shared_ == MAP_FAILED) Die(std::string("mmap: ") + strerror(errno));
}

CallTimes::~CallTimes() { munmap(shared_, sizeof(Shared)); }

void CallTimes::Add(const std::string& request, double seconds) {
  const size_t index = shared_->count.fetch_add(1, std::memory_order_relaxed);
  if (index < kMostCalls) shared_->entries[index] = {std::hash<std::string>()(request), seconds};
}

void CallTimes::Clear() { shared_->count = 0; }

std::vector<double> CallTimes::Of(const std::string& request) const {
  const size_t wanted = std::hash<std::string>()(request);
  std::vector<double> times;
  for (size_t i = 0; i < std::min(shared_->count.load(), kMostCalls); ++i) {
    if (shared_->entries[i].request == wanted) times.push_back(shared_->entries[i].seconds);
  }
  return times;
}

OwnDaemon::OwnDaemon(OwnFabric fabric) {
  char dir[] = "/tmp/mrd-bench.XXXXXX";
  if (mkdtemp(dir) == nullptr) Die(std::string("mkdtemp: ") + strerror(errno));
  dir_ = dir;
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) Die(std::string("fork: ") + strerror(errno));
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // It died before.
  _exit(RunIn(socket_dir(), fabric, &times_));
}

OwnDaemon::~OwnDaemon() {
  kill(pid_, SIGTERM);
  int status = 0;
  waitpid(pid_, &status, 0);
  std::filesystem::remove_all(dir_);
  if (status != 0) Die("the daemon did not end well: status " + std::to_string(status));
}

}  // namespace mrd::bench
