// systemd's file descriptor store: what is in it outlives this process, and is inherited by the
// next run of the service (inherited.h). sd_notify(3), FDSTORE=1.
#ifndef MRD_DAEMON_HOST_FD_STORE_H_
#define MRD_DAEMON_HOST_FD_STORE_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/broker/ledger/store.h"
#include "daemon/host/notify_socket.h"
#include "daemon/mutex.h"

namespace mrd::host {

// Thread-safe. Nobody answers: what systemd refuses (a store that is full, a descriptor of which it
// has a duplicate) shows in its log and after the next start only. So this counts for itself.
class FdStore final : public broker::ledger::Store {
 public:
  // All names go to a service in one environment variable, and the store is a list that is walked:
  // systemd is quadratic in it. Not more, and not longer names, than were tried.
  static constexpr size_t kMost = 2000;
  static constexpr size_t kMostNameBytes = 12;

  // `limit`: FileDescriptorStoreMax of the unit, which systemd 252 tells nobody; at most kMost are
  // used. `inherited`: names that are in it already.
  FdStore(size_t limit, const std::vector<std::string>& inherited);
  FdStore(const FdStore&) = delete;
  FdStore& operator=(const FdStore&) = delete;

  // Puts a duplicate of `fd` into it under this name, which none in it has. May block for seconds
  // while systemd is slow to read. It is there when this returns, as far as a later end of this
  // process goes: systemd reads all that was sent before it looks who has died. RESOURCE_EXHAUSTED:
  // it is full; UNAVAILABLE: systemd was not reached ($NOTIFY_SOCKET).
  absl::Status Add(const std::string& name, int fd) override MRD_EXCLUDES(mutex_);
  // Takes it out: the last duplicate may close. Nothing where there is none of this name.
  void Remove(const std::string& name) override MRD_EXCLUDES(mutex_);

  size_t limit() const override { return limit_; }
  size_t used() const override MRD_EXCLUDES(mutex_);

 private:
  const NotifySocket systemd_;
  const size_t limit_;
  mutable Mutex mutex_;
  std::multiset<std::string> names_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_FD_STORE_H_
