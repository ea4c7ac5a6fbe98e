#include "daemon/broker/policy/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "daemon/broker/policy/parse.h"
#include "daemon/unique_fd.h"

namespace mrd::policy {

absl::StatusOr<std::string> ReadPolicyFile(const std::string& path) {
  const auto error = [&](const char* what) {
    return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
  };
  // O_NONBLOCK: a FIFO has no writer to wait for.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return error("cannot open the policy");
  struct stat facts;
  if (fstat(file.get(), &facts) < 0) return error("cannot look at the policy");
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("the policy ", path, " is not a regular file"));
  }
  std::string text;
  char part[16384];
  for (;;) {
    const ssize_t count = read(file.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error("cannot read the policy");
    if (count == 0) return text;
    text.append(part, count);
    if (text.size() > kMostFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the policy ", path, " is larger than ", kMostFileBytes, " bytes"));
    }
  }
}

}  // namespace mrd::policy
