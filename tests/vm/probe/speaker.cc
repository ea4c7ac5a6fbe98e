#include "tests/vm/probe/speaker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/vm/probe/words.h"

namespace probe {
namespace {

using mrd::internal::UniqueFd;

constexpr int kPatienceMs = 60'000;

}  // namespace

absl::StatusOr<Speaker> Speaker::Start(const std::vector<std::string>& command) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  UniqueFd in_read(in[0]);
  UniqueFd in_write(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  UniqueFd out_read(out[0]);
  UniqueFd out_write(out[1]);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in_read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  pid_t pid;
  const int error = posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, words[0]);
  return Speaker(pid, std::move(in_write), std::move(out_read));
}

Speaker::Speaker(Speaker&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      heard_(std::move(other.heard_)) {}

Speaker::~Speaker() { Kill(); }

absl::Status Speaker::Tell(const std::string& line) {
  const std::string text = line + "\n";
  // Lines are shorter than what a pipe takes at once.
  if (write(in_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("telling client ", pid_, ": ", line));
}

absl::StatusOr<std::string> Speaker::Hear() {
  for (;;) {
    if (const size_t end = heard_.find('\n'); end != std::string::npos) {
      std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd wait = {out_.get(), POLLIN, 0};
    if (poll(&wait, 1, kPatienceMs) == 0) {
      return absl::DeadlineExceededError(absl::StrCat("client ", pid_, " says nothing"));
    }
    char text[4096];
    const ssize_t size = read(out_.get(), text, sizeof text);
    if (size <= 0) return absl::UnavailableError(absl::StrCat("client ", pid_, " has ended"));
    heard_.append(text, size);
  }
}

absl::StatusOr<std::string> Speaker::Say(const std::string& line) {
  if (absl::Status status = Tell(line); !status.ok()) return status;
  return Hear();
}

void Speaker::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::optional<std::string> Field(const std::string& answer, const std::string& key) {
  for (const std::string& word : Split(answer)) {
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  }
  return std::nullopt;
}

}  // namespace probe
