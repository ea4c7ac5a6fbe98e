// The generations of devices, and what holds each.
#ifndef MRD_DAEMON_BROKER_GENERATIONS_H_
#define MRD_DAEMON_BROKER_GENERATIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/broker/broker.h"

namespace mrd::broker {

struct GenerationView {
  DeviceRef device;
  bool newest = false;
  uint64_t sessions = 0;  // That have a region or an endpoint in it.
  uint64_t domains = 0;   // In which these lie.
  uint64_t regions = 0;
  uint64_t endpoints = 0;
};

// By device, the newest first, with what these sessions have in each. Looks at each of them. May
// block.
std::vector<GenerationView> Generations(Broker& broker, const std::vector<SessionRef>& sessions);

// Asks every session that has something in this generation to leave it, and returns how many those
// are. Errors: GENERATION_UNKNOWN. May block.
absl::StatusOr<uint64_t> LeaveGeneration(Broker& broker, const std::string& device,
                                         uint64_t generation, const std::string& reason);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_GENERATIONS_H_
