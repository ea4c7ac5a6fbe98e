// A client_probe that is spoken to by another: a process of its own, at the other end of two pipes.
#ifndef TESTS_VM_PROBE_SPEAKER_H_
#define TESTS_VM_PROBE_SPEAKER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/unique_fd.h"

namespace probe {

// Not thread-safe. Its process is killed with it.
class Speaker final {
 public:
  // Starts `command`, which ends in a client_probe.
  static absl::StatusOr<Speaker> Start(const std::vector<std::string>& command);
  Speaker(Speaker&& other) noexcept;
  Speaker& operator=(Speaker&&) = delete;
  ~Speaker();

  // One line, without waiting for what it answers.
  absl::Status Tell(const std::string& line);
  // Its next line.
  absl::StatusOr<std::string> Hear();
  absl::StatusOr<std::string> Say(const std::string& line);

  // SIGKILL, and waits for its end.
  void Kill();

 private:
  Speaker(pid_t pid, mrd::internal::UniqueFd in, mrd::internal::UniqueFd out)
      : pid_(pid), in_(std::move(in)), out_(std::move(out)) {}

  pid_t pid_;  // -1: dead.
  mrd::internal::UniqueFd in_;
  mrd::internal::UniqueFd out_;
  std::string heard_;  // Of the line after.
};

// The value of KEY=value in an answer.
std::optional<std::string> Field(const std::string& answer, const std::string& key);

}  // namespace probe

#endif  // TESTS_VM_PROBE_SPEAKER_H_
