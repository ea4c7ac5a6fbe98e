// A lease and the regions under it.
#ifndef MRD_DAEMON_BROKER_LEASE_H_
#define MRD_DAEMON_BROKER_LEASE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "daemon/broker/books.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/fabric/fabric.h"
#include "daemon/memory/mapping.h"

namespace mrd::broker {

// A device in one generation; shared by all that names it.
using DeviceRef = std::shared_ptr<const fabric::DeviceInfo>;

// The protection domain of a session, or of a named domain, on a device, held by whoever uses it.
struct SessionDomain {
  DeviceRef device;
  std::shared_ptr<fabric::Domain> domain;
};

struct KeyView {
  DeviceRef device;
  uint32_t lkey;
  uint32_t rkey;
};

// What a client is told of a lease.
struct LeaseView {
  uint64_t id;
  uint64_t buffer_id;
  uint64_t offset;
  uint64_t length;
  uint64_t addr;
  fabric::AccessMask access;
  absl::InlinedVector<KeyView, 1> keys;
  std::shared_ptr<const std::string> domain = nullptr;  // Its name; null: the private one.
  // Until it lapses, when this was written down; nothing: it lasts as long as its session.
  std::optional<std::chrono::nanoseconds> remaining = std::nullopt;
};

using LeaseViews = std::vector<LeaseView>;

struct RequestRecord;

// A region and what must outlive it: members die in reverse order.
struct HeldRegion {
  std::shared_ptr<fabric::Domain> domain;
  std::shared_ptr<memory::Mapping>
      mapping;  // Of an ON_DEMAND region: its pages are found through it. Else null.
  std::unique_ptr<fabric::Region> region;
};

// A lease's part of the ledger.
struct WrittenLease {
  ledger::Record record;
  std::shared_ptr<ledger::CallRecord> call;  // Of a call that made several; else null.
};

// What one registration pins, as the kernel counts it: every page that it touches
// (ib_umem_num_pages).
constexpr uint64_t PinnedBytes(uint64_t addr, uint64_t length) {
  constexpr uint64_t kPage = 4096;
  const uint64_t before = addr % kPage;
  return (before + length + kPage - 1) / kPage * kPage;
}

// Owned by its session, or by the one call that is making or ending it.
struct Lease {
  // Of each of its regions.
  Amounts each() const { return {.regions = 1, .bytes = PinnedBytes(view.addr, view.length)}; }
  Amounts booked() const {
    return {.regions = regions.size(), .bytes = each().bytes * regions.size()};
  }

  LeaseView view = {};
  absl::InlinedVector<HeldRegion, 1> regions;
  // In the ledger; erased before the first of the regions ends. Null: it does not survive the
  // daemon.
  std::unique_ptr<WrittenLease> written;
  // That made it, of its session's log; null where it had no request_id.
  RequestRecord* request = nullptr;
  // Zero: it lasts as long as its session.
  std::chrono::nanoseconds ttl{0};
  // For the session's Expiries alone.
  std::chrono::steady_clock::time_point renewed{};
  std::chrono::steady_clock::time_point due{};
};

// Ends what can be ended of it; it keeps the rest.
// True: all of it. `first_error` is set where it is OK yet.
bool EndRegions(Lease& lease, absl::Status* first_error);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_LEASE_H_
