#include "client/local_error.h"

#include <string.h>

#include <utility>

#include "mrd/v1/status.h"

namespace mrd::internal {

absl::Status LocalError(absl::StatusCode code, std::string what, int errno_value,
                        std::string advice) {
  v1::ErrorDetail detail;
  if (errno_value != 0) {
    detail.set_errno_value(errno_value);
    detail.set_errno_name(ErrnoName(errno_value));
    const char* text = strerrordesc_np(errno_value);
    what += ": ";
    what += text ? text : detail.errno_name();
  }
  if (!advice.empty()) {
    what += ". ";
    what += advice;
  }
  detail.set_advice(std::move(advice));
  return WithDetail(absl::Status(code, what), detail);
}

}  // namespace mrd::internal
