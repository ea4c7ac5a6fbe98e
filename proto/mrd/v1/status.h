// absl::Status that carries an mrd.v1.ErrorDetail: what the daemon makes and what the client
// library returns.
#ifndef MRD_V1_STATUS_H_
#define MRD_V1_STATUS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "mrd/v1/error.pb.h"

namespace mrd {

// What a refusal says beside its reason; every member may stay empty.
struct ErrorFacts {
  int errno_value = 0;
  std::string limit_name = {};
  uint64_t limit = 0;
  uint64_t used = 0;
  std::string advice = {};
};

// The canonical code that carries `reason`, as error.proto tables it.
absl::StatusCode CodeOf(v1::Reason reason);

// A refusal: `what` says what was refused and why, with the values; facts.advice says what to do.
// The status' message is both, so that a caller who prints it alone has everything.
absl::Status MakeError(v1::Reason reason, std::string what, ErrorFacts facts = {});

// `status` with `detail` attached (replacing one that is there).
absl::Status WithDetail(absl::Status status, const v1::ErrorDetail& detail);

// `status` with `prefix` before its message, and its detail as it is.
absl::Status WithPrefix(const std::string& prefix, const absl::Status& status);

// The detail of a status; nothing where it has none (a transport error, a deadline).
std::optional<v1::ErrorDetail> DetailOf(const absl::Status& status);

// The reason of a status; REASON_UNSPECIFIED where it has no detail.
v1::Reason ReasonOf(const absl::Status& status);

// "ENOMEM"; "errno 4711" for one without a name.
std::string ErrnoName(int errno_value);

}  // namespace mrd

#endif  // MRD_V1_STATUS_H_
