// What an earlier run of the daemon left, taken over: the kernel is the truth, the ledger says
// whose it is, and what no committed record claims is ended.
#ifndef MRD_DAEMON_BROKER_ADOPTION_H_
#define MRD_DAEMON_BROKER_ADOPTION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/endpoints.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/open_ledger.h"
#include "daemon/unique_fd.h"

namespace mrd::broker {

// Once, before the broker is used. May block.
class Adoption {
 public:
  // How long clients may take to come back.
  static constexpr std::chrono::seconds kGrace{10};

  struct Counts {
    size_t sessions = 0, regions = 0, endpoints = 0;
    size_t ended_sessions = 0, ended_objects = 0;  // Of processes that have ended; in the kernel.
  };

  // `lives`: whether the process of a session is there still.
  Adoption(Broker& broker, ledger::Ledger& ledger, StoredFds fds,
           std::function<bool(const Identity&)> lives);

  // DATA_LOSS: the ledger contradicts itself; nothing was adopted, and all has been ended.
  absl::Status Run();
  const Counts& counts() const { return counts_; }

 private:
  using Generation = std::pair<std::string, uint64_t>;  // Of a device, by its name.

  // One opening of a device, and what is claimed there.
  struct Device {
    DeviceRef info;
    std::shared_ptr<fabric::AdoptedDevice> kernels;
    std::set<uint32_t> regions, queue_pairs, completion_queues;
    struct Domain {
      SessionDomain domain;
      std::pair<uint64_t, uint64_t> owner;  // A session and 0, or 0 and a named domain.
    };
    std::map<uint32_t, Domain> domains;
    std::set<uint32_t> listed_queue_pairs;
  };

  absl::Status Adopt();
  void ReadDevices();
  void ReadSessions();
  void ReadMemberships();
  void ReadCalls();
  absl::Status ReadLeases();
  // Those that the kernel has, with their keys. Errors: the ledger contradicts itself.
  absl::Status AdoptRegions(const SessionRef& session, const ledger::pb::Lease& record,
                            Lease* lease);
  absl::Status ReadEndpoints();
  // False: nothing is left of it. Errors: the ledger contradicts itself.
  absl::StatusOr<bool> AdoptListener(const Session& session, Endpoint& endpoint,
                                     const ledger::pb::Endpoint& record);
  absl::StatusOr<bool> AdoptConnection(const SessionRef& session,
                                       const std::shared_ptr<Endpoint>& endpoint,
                                       const ledger::pb::Endpoint& record, bool connected);

  // Each record of this kind is given to `visit`; what it does not take is erased.
  template <typename Message, typename Visit>
  void Each(ledger::Kind kind, Visit visit) {
    ledger::Slots& slots = ledger_.slots();
    slots.ForEach(kind, [&](ledger::Slots::Id id, std::string_view bytes) {
      ledger::Record entry(slots, id);
      Message record;
      if (record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        visit(entry, record);
      } else {
        ++unreadable_;
      }
    });
  }
  static absl::Status Contradicts(absl::string_view what);
  // Takes the one descriptor of this name; none where there is none, or are several.
  UniqueFd TakeFd(const std::string& name);
  // Null: the ledger contradicts itself.
  std::shared_ptr<fabric::Domain> ClaimDomain(Device& device, uint32_t pd,
                                              const SessionRef& session, uint64_t domain_id);
  Device* DeviceOf(const std::string& name, uint64_t generation);
  SessionRef SessionOf(uint64_t id);
  // `call` may be null.
  void Remember(const SessionRef& session, const std::string& request_id, uint64_t fingerprint,
                const std::vector<uint64_t>& lease_ids,
                const std::shared_ptr<ledger::CallRecord>& call) MRD_REQUIRES(session->mutex);
  void EndUnclaimed();
  void EndUnclaimed(Device& device);
  void EndAll();

  Broker& broker_;
  ledger::Ledger& ledger_;
  StoredFds fds_;
  const std::function<bool(const Identity&)> lives_;
  Counts counts_;
  size_t unreadable_ = 0;  // Records that do not parse.
  std::map<Generation, Device> devices_;
  std::map<uint64_t, SessionRef> sessions_;
  std::map<uint64_t, NamedDomainRef> named_;  // By id.
  std::map<uint64_t, ledger::pb::Call> calls_;
  std::map<uint64_t, std::shared_ptr<ledger::CallRecord>> call_records_;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_ADOPTION_H_
