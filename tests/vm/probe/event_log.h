// The events that the daemon sent to a client, each with what the kernel said when it came.
#ifndef TESTS_VM_PROBE_EVENT_LOG_H_
#define TESTS_VM_PROBE_EVENT_LOG_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mrd/v1/attach.pb.h"

namespace probe {

// Thread-safe.
class EventLog final {
 public:
  // To be called as soon as it comes.
  void Add(const mrd::v1::AttachEvent& event);

  // Waits until the events of this kind ("LAPSED") that were not taken before tell of so many
  // leases, and takes them. "events=N leases=N told0=N regions0=N told1=...": of each event, the
  // leases that had been told of with it, and the regions that there were still then on all
  // devices, of all processes.
  absl::StatusOr<std::string> Take(const std::string& kind, uint64_t leases,
                                   std::chrono::milliseconds patience);

  // How many of this kind have come and were not taken.
  absl::StatusOr<std::string> Count(const std::string& kind) const;

 private:
  struct Entry {
    mrd::v1::AttachEvent::EventKind kind;
    uint64_t leases;
    absl::StatusOr<uint64_t> regions;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
};

}  // namespace probe

#endif  // TESTS_VM_PROBE_EVENT_LOG_H_
