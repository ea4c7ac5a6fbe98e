// The policy file of a daemon, and putting it in force.
#ifndef MRD_DAEMON_POLICY_FILE_H_
#define MRD_DAEMON_POLICY_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/broker/books.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/observer.h"
#include "daemon/mutex.h"
#include "mrd/v1/policy.pb.h"

namespace mrd {

// The policy of this file; `path` empty: the default file, and no rules where there is none. Errors
// have been logged, each problem of the file with its line and column, and are in the message too:
// INVALID_ARGUMENT of its text, else as the file system has it.
absl::StatusOr<v1::Policy> ReadPolicy(const std::string& path);

// Thread-safe: a signal and an admin's call may come together.
class PolicyFile {
 public:
  // Puts `first` in force, which ReadPolicy(path) gave. Limits of rules are cut to `ceiling`: what
  // the process can hold; what they leave unset is `built_in`. `books` and `observer` outlive it.
  PolicyFile(broker::Books& books, broker::Observer& observer, std::string path, v1::Policy first,
             const broker::Limits& built_in, const broker::Limits& ceiling);

  // Reads the file anew and puts it in force for all sessions, those that live included; logs what
  // changed. Errors: those of ReadPolicy; the policy in force stays, and the log says so.
  absl::Status Reload() MRD_EXCLUDES(mutex_);

 private:
  void Apply(v1::Policy policy);

  broker::Books& books_;
  broker::Observer& observer_;
  const std::string path_;
  const broker::Limits built_in_;
  const broker::Limits ceiling_;
  Mutex mutex_;  // A file is read, and put in force, before the next one. Before the books' locks.
};

}  // namespace mrd

#endif  // MRD_DAEMON_POLICY_FILE_H_
