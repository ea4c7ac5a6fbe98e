// The daemon on faked verbs, with what only tests set:
//
//   MRD_FAKE_VERBS   the devices; see tests/fake/spec.h
//   MRD_TEST_SET     NAME=VALUE,...; see kSettings and Set
//   MRD_TEST_CONTROL the path of a socket on which the test changes faults and counts what is
//   alive;
//                    see Answer
//
// Exit status: the daemon's; 3 where it leaves something alive on the faked devices.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/daemon.h"
#include "daemon/unique_fd.h"
#include "tests/fake/fake_verbs.h"

namespace mrd {
namespace {

template <typename T>
struct Setting {
  const char* name;
  T broker::Limits::*field;
};
constexpr Setting<uint64_t> kPerUid[] = {
    {"sessions", &broker::Limits::sessions},   {"connections", &broker::Limits::connections},
    {"regions", &broker::Limits::regions},     {"pinned_bytes", &broker::Limits::pinned_bytes},
    {"endpoints", &broker::Limits::endpoints}, {"buffers_of_uid", &broker::Limits::buffers_of_uid}};
constexpr Setting<size_t> kPerSession[] = {{"buffers", &broker::Limits::buffers},
                                           {"calls", &broker::Limits::calls},
                                           {"calls_of_uid", &broker::Limits::calls_of_uid},
                                           {"ranges_per_call", &broker::Limits::ranges_per_call},
                                           {"queued", &broker::Limits::queued},
                                           {"queued_in_all", &broker::Limits::queued_in_all}};

bool Set(Options& options, const std::string& name, uint64_t value) {
  for (const auto& setting : kPerUid) {
    if (name == setting.name) return options.limits.*setting.field = value, true;
  }
  for (const auto& setting : kPerSession) {
    if (name == setting.name) return options.limits.*setting.field = value, true;
  }
  if (name == "nofile") {
    const rlimit limit{value, value};
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
  }
  if (name == "unsealed") return options.limits.unsealed = value != 0, true;
  if (name == "idle_ms") return options.server.idle = std::chrono::milliseconds(value), true;
  if (name == "rpc_memory") return options.server.memory = value, true;
  if (name == "peer_pidfd") return options.peer_pidfd = value != 0, true;
  if (name == "textfile_ms") {
    return options.metrics_textfile_every = std::chrono::milliseconds(value), true;
  }
  if (name == "ending_ms") return options.most_ending = std::chrono::milliseconds(value), true;
  if (name == "registrar_threads") return options.registrar_threads = value, true;
  return false;
}

void SetAll(Options& options, const char* text) {
  if (text == nullptr) return;
  for (absl::string_view each : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> setting = absl::StrSplit(each, '=');
    if (!Set(options, setting.first, strtoull(setting.second.c_str(), nullptr, 10))) {
      fprintf(stderr, "MRD_TEST_SET: no setting %s\n", setting.first.c_str());
      exit(2);
    }
  }
}

std::string Alive(const fake::Live& live) {
  return absl::StrCat("contexts ", live.contexts.load(), " pds ", live.pds.load(), " mrs ",
                      live.mrs.load(), " cqs ", live.cqs.load(), " qps ", live.qps.load(), " ids ",
                      live.ids.load(), " channels ", live.channels.load());
}

// live | fail DEVICE CALL FAULT | remove DEVICE | add DEVICE | fatal DEVICE | port DEVICE up|down |
// lose_uevents | removal_waits | unplug DEVICE | memlock LIMIT PINNED IPC_LOCK | fail_qps
std::string Answer(fake::FakeVerbs& verbs, const std::string& line) {
  std::istringstream words(line);
  std::string command, device, call, fault;
  words >> command;
  if (command == "live") return Alive(verbs.live());
  if (command == "fail" && words >> device >> call >> fault) {
    verbs.Fail(device, call, fault);
    return "ok";
  }
  if (command == "remove" && words >> device) return verbs.Remove(device), "ok";
  if (command == "add" && words >> device) return verbs.Add(device), "ok";
  if (command == "fatal" && words >> device) return verbs.Fatal(device), "ok";
  if (command == "port" && words >> device >> call)
    return verbs.SetPort(device, call == "up"), "ok";
  if (command == "lose_uevents") return verbs.uevents().Lose(), "ok";
  if (command == "removal_waits") return verbs.RemovalWaits() ? "yes" : "no";
  if (command == "unplug" && words >> device) {
    verbs.Unplug(device);
    return "ok";
  }
  uint64_t limit, pinned;
  bool ipc_lock;
  if (command == "memlock" && words >> limit >> pinned >> ipc_lock) {
    verbs.SetMemlock(limit, pinned, ipc_lock);
    return "ok";
  }
  if (command == "fail_qps") {
    verbs.FailQueuePairs();
    return "ok";
  }
  fprintf(stderr, "MRD_TEST_CONTROL: no command %s\n", line.c_str());
  abort();
}

// Answers one packet after another on a thread of its own until it is destroyed.
class Control {
 public:
  Control(fake::FakeVerbs& verbs, const char* path) {
    if (path == nullptr) return;
    socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
      perror(path);
      exit(2);
    }
    // The thread takes none of the signals that the daemon waits for.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this, &verbs] { Run(verbs); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Control() {
    if (!thread_.joinable()) return;
    shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void Run(fake::FakeVerbs& verbs) {
    for (;;) {
      char line[256];
      sockaddr_un from{};
      socklen_t from_length = sizeof from;
      const ssize_t length = recvfrom(socket_.get(), line, sizeof line, 0,
                                      reinterpret_cast<sockaddr*>(&from), &from_length);
      if (length <= 0) return;
      const std::string answer = Answer(verbs, std::string(line, length));
      sendto(socket_.get(), answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from),
             from_length);
    }
  }

  UniqueFd socket_;
  std::thread thread_;
};

int Main(int argc, char** argv) {
  Options options;
  int exit_code = 0;
  if (!ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  SetAll(options, getenv("MRD_TEST_SET"));
  const auto verbs = fake::FakeVerbs::FromEnvironment();
  {
    const Control control(*verbs, getenv("MRD_TEST_CONTROL"));
    exit_code = RunDaemon(options, *verbs);
  }
  const std::string leaks = verbs->Leaks();
  if (leaks.empty()) return exit_code;
  fprintf(stderr, "left alive: %s\n", leaks.c_str());
  return 3;
}

}  // namespace
}  // namespace mrd

int main(int argc, char** argv) { return mrd::Main(argc, argv); }
