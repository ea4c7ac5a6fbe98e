// The protection domains of one owner, a session or a named domain: one a device that was used.
#ifndef MRD_DAEMON_BROKER_DOMAIN_SET_H_
#define MRD_DAEMON_BROKER_DOMAIN_SET_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/broker/lease.h"
#include "daemon/fabric/fabric.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Thread-safe. The end of a domain may block: so may that of the set and of what Take returns.
class DomainSet {
 public:
  // Makes the domain on a device. May block.
  using Make = absl::FunctionRef<absl::StatusOr<SessionDomain>()>;
  // DeviceWatch::IsGone.
  using IsGone = absl::FunctionRef<bool(const fabric::DeviceInfo&)>;

  // The domain on the device of this name, made where there is none: all that its owner registers
  // on a device lies in one. One that nothing was registered in ends with the last who holds it: a
  // refused call leaves none behind. Errors: make's; DEVICE_REMOVED.
  absl::StatusOr<SessionDomain> For(const std::string& device, Make make, IsGone is_gone);

  // One that is kept; nothing where it would have to be made.
  std::optional<SessionDomain> Kept(const std::string& device);

  // One of before a restart of the daemon: neither For nor Kept finds it; it is in Adopted until
  // nobody else holds it.
  void Adopt(SessionDomain domain);
  // Those on the device of this name, the newest first.
  std::vector<SessionDomain> Adopted(const std::string& device);
  // Those that nobody else holds any more are the caller's to end.
  std::vector<SessionDomain> TakeUnused();
  bool HasAdopted() const { return has_adopted_.load(std::memory_order_relaxed); }

  // A region lies in it: it stays from now on.
  void Keep(const SessionDomain& domain);

  // That opening of a device is gone, and the older ones with it: what is kept there is the
  // caller's to end. REQUIRES: IsGone
  // is true of it, so that For adds nothing there behind this.
  std::vector<SessionDomain> Drop(const fabric::DeviceInfo& device);

  // All that are kept are the caller's to end.
  std::vector<SessionDomain> Take();

 private:
  struct Slot {
    DeviceRef device;
    std::weak_ptr<fabric::Domain> made;
    std::shared_ptr<fabric::Domain> kept;
    bool adopted = false;
  };

  std::optional<SessionDomain> MadeLocked(const std::string& device, IsGone is_gone)
      MRD_REQUIRES(mutex_);

  void NoteAdoptedLocked() MRD_REQUIRES(mutex_);

  Mutex mutex_;
  std::atomic<bool> has_adopted_ = false;  // Asked by each registration.
  std::vector<Slot> slots_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_DOMAIN_SET_H_
