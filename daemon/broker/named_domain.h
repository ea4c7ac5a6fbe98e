// Protection domains that sessions share on purpose, by a name: owner, group and mode say who may,
// as for a file.
#ifndef MRD_DAEMON_BROKER_NAMED_DOMAIN_H_
#define MRD_DAEMON_BROKER_NAMED_DOMAIN_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/broker/domain_set.h"
#include "daemon/broker/identity.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Held by its members; ends with the last of them, which may block. The regions of all members on a
// device lie in one protection domain: the keys of each serve the connections of all. What lies in
// it when the last member leaves keeps the protection domain, without the name.
struct NamedDomain {
  uint64_t id = 0;  // Of this one: another one may have its name later.
  std::shared_ptr<const std::string> name;
  uid_t owner = 0;
  gid_t group = 0;
  mode_t mode = 0;  // Read and write go together: 0600, 0660, 0666 and the like.
  DomainSet domains;
};

using NamedDomainRef = std::shared_ptr<NamedDomain>;

struct OpenDomainSpec {
  std::string name;
  // Where there is none of this name. Where there is one, of another uid, it must admit nobody whom
  // the next two would not.
  bool create = false;
  mode_t mode = 0;  // 0: 0600.
  bool group_given = false;
  gid_t group = 0;  // One of the opener's. Not given: its primary one.
};

struct DomainView {
  std::string name;
  uid_t owner;
  gid_t group;
  mode_t mode;
};

// Thread-safe. Outlives all domains.
class NamedDomains {
 public:
  static constexpr size_t kMostOfUser = 64;  // Domains that are alive and owned by one uid.
  static constexpr size_t kMostNameBytes = 64;

  // Errors: REQUEST_INVALID, DOMAIN_UNKNOWN, DOMAIN_FORBIDDEN, QUOTA_DOMAINS.
  absl::StatusOr<NamedDomainRef> Open(const Identity& who, const OpenDomainSpec& spec);
  // One of before a restart of the daemon: the one of this id, made where there is none yet. Null:
  // another one of this name is alive.
  NamedDomainRef Adopt(uint64_t id, const DomainView& domain);
  // Those that `who` may open, by name.
  std::vector<DomainView> List(const Identity& who);
  // All of them, by name, after this one; at most so many.
  std::vector<DomainView> ListAll(const std::string& after, size_t most);

 private:
  absl::StatusOr<NamedDomainRef> CreateLocked(const Identity& who, const OpenDomainSpec& spec)
      MRD_REQUIRES(mutex_);
  NamedDomainRef MakeLocked(uint64_t id, const DomainView& domain) MRD_REQUIRES(mutex_);
  void Ended(const NamedDomain& domain) MRD_EXCLUDES(mutex_);

  Mutex mutex_;
  std::map<std::string, std::weak_ptr<NamedDomain>> by_name_ MRD_GUARDED_BY(mutex_);
  std::unordered_map<uid_t, size_t> by_owner_ MRD_GUARDED_BY(mutex_);  // None is 0.
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_NAMED_DOMAIN_H_
