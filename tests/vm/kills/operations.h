// What clients, operators and the daemon do, each to be cut short at every step.
#ifndef TESTS_VM_KILLS_OPERATIONS_H_
#define TESTS_VM_KILLS_OPERATIONS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/vm/kills/world.h"
#include "tests/vm/probe/speaker.h"

namespace kills {

// Of one trial.
struct Scene {
  World& world;
  std::list<Holder> holders = {};
  std::optional<probe::Speaker> victim = {};  // A client that is a process of its own.
};

struct Operation {
  using Part = std::function<absl::Status(Scene&)>;

  std::string name;
  Part prepare = {};  // All goes well.
  Part act = {};      // The daemon may die under it, and its answer is OK.
  Part settle = {};   // Until all is done that it began. May be empty.
  // A client is told that nobody knows whether it had an effect where the daemon died.
  bool may_fail = false;
  // It ends leases without their client's doing.
  bool may_end = false;
  // Where the daemon dies first, before the steps are counted: at the nth step of this name. Empty:
  // nowhere.
  std::string first = {};
  uint64_t first_at = 0;
};

// Those about one device, and those about all of them.
std::vector<Operation> LeaseOperations(const std::string& device);
std::vector<Operation> EndpointOperations(const std::string& device);
std::vector<Operation> SessionOperations(const std::string& device);  // With a listener on it.
std::vector<Operation> AdoptionOperations(const std::string& device);

// Parts of them. Empty `devices`: all.
absl::Status AddHolder(Scene& scene, bool renew = true);
mrd::RegisterOptions Options(const std::string& device);
absl::Status Register(Holder& holder, const mrd::RegisterOptions& options, uint64_t count);
absl::Status Deregister(Holder& holder);
// A listener of this holder, or a connection between two.
absl::Status Listen(Scene& scene, Holder& holder, const std::string& device);
absl::Status Connect(Scene& scene, Holder& from, Holder& to, const std::string& device);
// All sessions but the admin's have ended.
absl::Status NobodyIsLeft(Scene& scene);

// First one, then the other; the first error.
Operation::Part Then(Operation::Part first, Operation::Part second);

}  // namespace kills

#endif  // TESTS_VM_KILLS_OPERATIONS_H_
