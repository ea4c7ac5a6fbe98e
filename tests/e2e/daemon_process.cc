#include "tests/e2e/daemon_process.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace mrd::e2e {
namespace {

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "a short path");
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool Connects(const std::string& path) {
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(path);
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// To find names of functions it opens the program, the libraries and /proc/self/maps for a moment.
bool IsASanitizers(const std::string& fd) {
  std::error_code gone;
  const std::string file = std::filesystem::read_symlink(fd, gone).string();
  return file.rfind("/proc/", 0) == 0 || file.rfind("/usr/lib/", 0) == 0 ||
         file.find("/bin/tests/") != std::string::npos;
}

}  // namespace

Resources ResourcesOf(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid);
  Resources resources;
  if (DIR* dir = opendir((proc + "/fd").c_str())) {
    while (const dirent* entry = readdir(dir)) {
      if (entry->d_name[0] == '.') continue;
      resources.fds += !kSanitized || !IsASanitizers(proc + "/fd/" + entry->d_name);
    }
    closedir(dir);
  }
  std::istringstream maps(ReadFile(proc + "/maps"));
  std::string range, permissions, rest;
  while (maps >> range >> permissions && std::getline(maps, rest)) {
    ++resources.mappings;
    resources.shared_mappings += permissions[3] == 's';
  }
  return resources;
}

ProcessOptions DaemonProcess::CommandFor(const DaemonOptions& options,
                                         const std::string& control) const {
  ProcessOptions process;
  process.argv = {"tests/e2e/test_daemon", "--fabric=" + options.fabric, "--socket-dir=" + dir_,
                  "--log-level=" + options.log_level, "--config=" + policy_file()};
  for (std::string arg : options.args) {
    if (const size_t at = arg.find('@'); at != std::string::npos) arg.replace(at, 1, base_);
    process.argv.push_back(std::move(arg));
  }
  process.environment = {{"MRD_FAKE_VERBS", options.devices},
                         {"MRD_TEST_SET", options.set},
                         // Few arenas: the heap's mappings say nothing of the daemon's.
                         {"MALLOC_ARENA_MAX", "2"}};
  if (!control.empty()) process.environment.emplace_back("MRD_TEST_CONTROL", control);
  process.own_pid_namespace = options.own_pid_namespace;
  // LeakSanitizer stops threads by the ids in /proc, which are those of another namespace.
  if (options.own_pid_namespace) process.environment.emplace_back("ASAN_OPTIONS", "detect_leaks=0");
  return process;
}

DaemonProcess::DaemonProcess(DaemonOptions options) {
  char base[] = "/tmp/mrd-XXXXXX";
  Require(mkdtemp(base) != nullptr, "mkdtemp");
  // Open to clients of other users; what is in it is for the daemon to guard.
  Require(chmod(base, 0755) == 0, "chmod");
  base_ = base;
  dir_ = base_ + "/mrd";
  std::ofstream(policy_file()) << options.policy;
  const std::string control = base_ + "/control";
  ProcessOptions process = CommandFor(options, control);
  process.stderr_path = base_ + "/log";
  process_ = std::make_unique<Process>(process);
  // The gRPC socket is the last one that it makes.
  const bool ready = WaitUntil(kPatience, [&] {
    return Connects(dir_ + "/mrd.sock") || process_->Wait(milliseconds(0)).has_value();
  });
  Require(ready && !process_->Wait(milliseconds(0)), "the daemon does not start: " + Log());
  control_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_un own = AddressOf(base_ + "/test");
  const sockaddr_un address = AddressOf(control);
  Require(
      bind(control_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0 &&
          connect(control_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
      "connect to the control socket");
}

DaemonProcess::~DaemonProcess() {
  process_ = nullptr;
  std::error_code ignored;
  std::filesystem::remove_all(base_, ignored);
}

Process DaemonProcess::StartRival(const DaemonOptions& options) {
  ProcessOptions process = CommandFor(options, "");
  process.stderr_path = base_ + "/rival-log";
  return Process(process);
}

void DaemonProcess::Reload(const std::string& policy, bool good) {
  const size_t before = Log().size();
  std::ofstream(policy_file()) << policy;
  process_->Kill(SIGHUP);
  const char* const said = good ? "policy in force" : "policy is not taken";
  Require(WaitUntil(kPatience, [&] { return Log().find(said, before) != std::string::npos; }),
          "no answer to SIGHUP: " + Log());
}

uint64_t DaemonProcess::Pss() const {
  std::istringstream rollup(ReadFile("/proc/" + std::to_string(pid()) + "/smaps_rollup"));
  std::string word;
  while (rollup >> word && word != "Pss:") {
  }
  uint64_t kib = 0;
  rollup >> kib;
  Require(kib > 0, "Pss of the daemon");
  return kib << 10;
}

std::string DaemonProcess::Control(const std::string& command) const {
  char answer[512];
  pollfd poll_fd{control_.get(), POLLIN, 0};
  Require(
      send(control_.get(), command.data(), command.size(), 0) > 0 && poll(&poll_fd, 1, 20000) == 1,
      "the control socket does not answer");
  const ssize_t length = recv(control_.get(), answer, sizeof answer, 0);
  Require(length > 0, "recv from the control socket");
  return std::string(answer, length);
}

}  // namespace mrd::e2e
