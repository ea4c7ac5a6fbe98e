#include "tests/bench/death.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/fabric/verbs/api_real.h"
#include "tests/bench/die.h"
#include "tests/bench/direct.h"
#include "tests/bench/mrd_side.h"
#include "tests/bench/registration.h"

namespace mrd::bench {
namespace {

constexpr uint64_t kBytes = kHeld * kSmall;
constexpr int kPollMicroseconds = 500;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// This program once more, as a child that holds regions; it dies with this one.
class Holder {
 public:
  explicit Holder(const Held& held) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Die(std::string("pipe: ") + strerror(errno));
    pid_ = fork();
    if (pid_ < 0) Die(std::string("fork: ") + strerror(errno));
    if (pid_ == 0) {
      // Between fork and exec of a process with threads: system calls only.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      const char* arguments[] = {"bench",        "--hold",
                                 "--device",     held.device.c_str(),
                                 "--socket-dir", held.socket_dir.c_str(),
                                 nullptr};
      if (held.socket_dir.empty()) arguments[4] = nullptr;
      execv("/proc/self/exe", const_cast<char**>(arguments));
      _exit(kCannotMeasure);
    }
    close(ends[1]);
    char ready;
    const bool holds = read(ends[0], &ready, 1) == 1;
    close(ends[0]);
    if (!holds) Die("a child that should hold regions ended");
  }

  void Kill() const { kill(pid_, SIGKILL); }
  void Wait() const { waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

uint64_t RegionsOf(const Client& admin) {
  return Must(admin.GetStatus(), "status").totals().regions();
}

// Who serves this directory, by the kernel's word.
pid_t DaemonOf(const std::string& socket_dir) {
  const std::string path = socket_dir + "/attach.sock";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ucred peer;
  socklen_t length = sizeof peer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    Die("cannot tell the daemon's pid: " + std::string(strerror(errno)));
  }
  close(fd);
  return peer.pid;
}

bool HasPinned(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmPin:", 0) == 0) return strtoull(line.c_str() + 6, nullptr, 10) != 0;
  }
  Die("the daemon's status in /proc tells no VmPin");
}

double KillDirect(const Held& held) {
  const Holder holder({held.device, ""});
  const auto start = std::chrono::steady_clock::now();
  holder.Kill();
  holder.Wait();
  return SecondsSince(start);
}

double KillClient(const Client& admin, const Held& held, bool real) {
  const Holder holder(held);
  const pid_t daemon = DaemonOf(held.socket_dir);
  if (RegionsOf(admin) != kHeld || (real && !HasPinned(daemon))) {
    Die("the daemon does not hold what the client registered");
  }
  const auto start = std::chrono::steady_clock::now();
  holder.Kill();
  while (real ? HasPinned(daemon) : RegionsOf(admin) != 0) usleep(kPollMicroseconds);
  const double took = SecondsSince(start);
  if (RegionsOf(admin) != 0) Die("the daemon's books hold what is not there any more");
  holder.Wait();
  return took;
}

}  // namespace

void Hold(const Held& held) {
  if (held.socket_dir.empty()) {
    // The memory is of the same kind, at a place of the kernel's choice.
    const int fd = memfd_create("bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, kBytes) != 0) Die(std::string("memfd: ") + strerror(errno));
    auto* memory = new FreshMapping(fd, kBytes, Populate::kMapPopulate);
    auto* direct = new Direct(fabric::verbs::MakeRealApi(), held.device);
    for (int i = 0; i < kHeld; ++i) {
      direct->Register(static_cast<char*>(memory->data()) + i * kSmall, kSmall);
    }
  } else {
    auto* mrd = new MrdSide(held.socket_dir, held.device);
    auto* buffer = new Buffer(mrd->MakeBuffer(kBytes));
    std::vector<Range> pages;
    for (int i = 0; i < kHeld; ++i) pages.emplace_back(*buffer, i * kSmall, kSmall);
    new std::vector<Region>(mrd->Register(pages));
  }
  if (write(STDOUT_FILENO, "h", 1) != 1) Die("nobody waits");
  for (;;) pause();
}

void MeasureDeaths(const Client& admin, const Held& held, bool real, int rounds, Samples* samples) {
  for (int round = 0; round < rounds; ++round) {
    if (real) samples->Add(kDirectDeath, KillDirect(held));
    samples->Add(kMrdDeath, KillClient(admin, held, real));
  }
}

}  // namespace mrd::bench
