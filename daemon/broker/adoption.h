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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/endpoints.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/unique_fd.h"

namespace mrd::broker {

// Descriptors of the store, as the service manager gave them.
using StoredFds = std::multimap<std::string, UniqueFd>;

// The ledger that is among `fds`, which is taken out, or a new one in the store. Where it cannot be
// believed (there are two, it is damaged, of another version, or three adoptions in a row have
// crashed), all of `fds` are closed and taken out of the store, which ends in the kernel what they
// kept alive; the log says so. Errors: there can be no ledger at all.
absl::StatusOr<std::unique_ptr<ledger::Slots>> OpenLedger(StoredFds& fds, ledger::Store& store);

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
  absl::Status ReadEndpoints();
  // Takes the one descriptor of this name; none where there is none, or are several.
  UniqueFd TakeFd(const std::string& name);
  // Null: the ledger contradicts itself.
  std::shared_ptr<fabric::Domain> ClaimDomain(Device& device, uint32_t pd,
                                              const SessionRef& session, uint64_t domain_id);
  Device* DeviceOf(const std::string& name, uint64_t generation);
  SessionRef SessionOf(uint64_t id);
  void Remember(const SessionRef& session, const std::string& request_id, uint64_t fingerprint,
                const std::vector<uint64_t>& lease_ids) MRD_REQUIRES(session->mutex);
  void EndUnclaimed();
  void EndUnclaimed(Device& device);
  void EndAll();

  Broker& broker_;
  ledger::Ledger& ledger_;
  StoredFds fds_;
  const std::function<bool(const Identity&)> lives_;
  Counts counts_;
  std::map<Generation, Device> devices_;
  std::map<uint64_t, SessionRef> sessions_;
  std::map<uint64_t, NamedDomainRef> named_;  // By id.
  std::map<uint64_t, ledger::pb::Call> calls_;
  std::map<uint64_t, std::shared_ptr<ledger::CallRecord>> call_records_;
  std::vector<ledger::Record> void_;  // Records that count no more, erased at the end.
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_ADOPTION_H_
