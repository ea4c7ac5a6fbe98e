#include "daemon/host/fd_store.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace mrd::host {

FdStore::FdStore(size_t limit, const std::vector<std::string>& inherited)
    : limit_(std::min(limit, kMost)), names_(inherited.begin(), inherited.end()) {}

absl::Status FdStore::Add(const std::string& name, int fd) {
  if (name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("too long a name for the store: ", name));
  }
  {
    MutexLock lock(mutex_);
    if (names_.size() >= limit_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the store of ", limit_, " file descriptors (FileDescriptorStoreMax) is full"));
    }
    names_.insert(name);
  }
  // Without FDPOLL=0 systemd would drop what is readable and hung up.
  const std::string message = absl::StrCat("FDSTORE=1\nFDNAME=", name, "\nFDPOLL=0");
  const int error = systemd_.TrySend(message, NotifySocket::kSome, fd);
  if (error == 0) return absl::OkStatus();
  MutexLock lock(mutex_);
  names_.erase(names_.find(name));
  return absl::UnavailableError(
      absl::StrCat("systemd's store was not reached: ",
                   error == EDESTADDRREQ ? "$NOTIFY_SOCKET is not set" : strerror(error)));
}

void FdStore::Remove(const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (names_.count(name) == 0) return;
  }
  // Its place is free once systemd knows: it would drop what another thread puts there before.
  const std::string message = absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name);
  if (const int error = systemd_.TrySend(message, NotifySocket::kSome); error != 0) {
    if (error == EDESTADDRREQ) return;  // There is no store.
    spdlog::warn("{} stays in systemd's store: {}", name, strerror(error));
    return;
  }
  MutexLock lock(mutex_);
  if (const auto found = names_.find(name); found != names_.end()) names_.erase(found);
}

size_t FdStore::used() const {
  MutexLock lock(mutex_);
  return names_.size();
}

}  // namespace mrd::host
