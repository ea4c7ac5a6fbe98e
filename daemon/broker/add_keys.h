// One AddKeys call: ranges of leases, pinned once more where the newest generation of a device has
// none of their keys.
#ifndef MRD_DAEMON_BROKER_ADD_KEYS_H_
#define MRD_DAEMON_BROKER_ADD_KEYS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/pinning.h"

namespace mrd::broker {

// Runs on one thread of the registrar. Holds the session's Work until it is answered.
class AddKeys {
 public:
  static void Start(Broker& broker, const SessionRef& session, std::vector<LeaseBuffer> leases,
                    RegisterDone done);

 private:
  // Leases that are pinned in one go: in one domain each, with one access.
  struct Group {
    std::vector<RangeSpec> ranges;
    std::vector<std::shared_ptr<memory::Buffer>> buffers;
    std::vector<std::unique_ptr<Lease>> leases;  // What is added, under the ids of the leases.
    NamedDomainRef named;                        // Theirs, whoever has its name by now.
    absl::InlinedVector<SessionDomain, 1> domains;
    Pinning pinning;
  };
  // A named domain, or "" for the private one; a device; the access.
  using Key = std::tuple<std::string, std::string, fabric::AccessMask>;

  AddKeys(Broker& broker, Work work, std::vector<LeaseBuffer> leases, RegisterDone done)
      : broker_(broker),
        session_(*work.session()),
        work_(std::move(work)),
        named_(std::move(leases)),
        done_(std::move(done)) {}

  void Run();
  absl::Status Make();
  // What is missing where.
  absl::Status Look();
  absl::Status LookLocked() MRD_REQUIRES(session_.mutex);
  absl::Status Book();
  absl::Status Pin(const Key& key, Group& group);
  void Commit();
  // Ends what was pinned, and is not its leases'.
  void RollBack();

  Broker& broker_;
  Session& session_;
  const Work work_;
  const std::vector<LeaseBuffer> named_;
  RegisterDone done_;
  std::map<std::string, DeviceRef> newest_;  // By name.
  std::map<Key, Group> groups_;
  Amounts booked_;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_ADD_KEYS_H_
