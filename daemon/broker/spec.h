// What a Register call asks for.
#ifndef MRD_DAEMON_BROKER_SPEC_H_
#define MRD_DAEMON_BROKER_SPEC_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/fabric/access.h"

namespace mrd::broker {

struct RangeSpec {
  uint64_t buffer_id;
  uint64_t offset;
  uint64_t length;
  uint64_t addr;
};

struct RegisterSpec {
  std::string request_id;    // Empty: none.
  uint64_t fingerprint = 0;  // Of the parameters.
  std::vector<RangeSpec> ranges;
  std::vector<std::string> devices;  // Empty: the first active one.
  bool all_devices = false;
  fabric::AccessMask access = 0;
  bool release_after = false;
  std::chrono::nanoseconds ttl{0};  // Zero: as long as the session.
  std::string domain;               // Empty: the session's private one.
  bool newest_only = false;         // Not where connections of before a restart lie.
  // Whether the caller still waits for the answer; asked now and then, from any thread. May be
  // empty: always.
  std::function<bool()> wanted;
};

// A lease that is to have keys in the newest generation, and its buffer as it is known now.
struct LeaseBuffer {
  uint64_t lease_id;
  uint64_t buffer_id;
};

// A refusal of this range, which says so.
absl::Status OfRange(const std::vector<RangeSpec>& ranges, size_t index,
                     const absl::Status& refusal);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_SPEC_H_
