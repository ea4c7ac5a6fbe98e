// A daemon that dies where it is told to, its clients, and whether books, kernel and clients agree.
#ifndef TESTS_VM_KILLS_WORLD_H_
#define TESTS_VM_KILLS_WORLD_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "tests/vm/dying/control.h"
#include "tests/vm/kills/kernel.h"

namespace kills {

using Clock = std::chrono::steady_clock;

// A session of this process, and what it believes to have.
struct Holder {
  // What it was told by itself.
  struct Told {
    std::mutex mutex;
    std::set<uint64_t> ended;  // Leases.
    uint64_t lost = 0;         // EVENTS_LOST: others may have ended too.
    bool gone = false;         // The session itself.
  };
  std::shared_ptr<Told> told = std::make_shared<Told>();
  std::optional<mrd::Client> client;
  std::list<mrd::Buffer> buffers;
  std::list<mrd::Listener> listeners;
  std::vector<mrd::Region> regions;
  std::vector<mrd::Endpoint> endpoints;
};

class World {
 public:
  // `addresses`: of each device. `second`: what a second is on this machine.
  World(dying::Control& control, std::map<std::string, std::string> addresses,
        std::chrono::milliseconds second);

  dying::Control& control() { return control_; }
  const std::string& address_of(const std::string& device) const { return addresses_.at(device); }

  // With a buffer of 64 KiB. `renew`: the library renews its leases.
  absl::StatusOr<Holder> Attach(bool renew = true);
  // As root, with the daemon that runs now.
  absl::StatusOr<mrd::Client*> Admin();

  // Kills the daemon from outside and waits for the next one.
  absl::Status Kill();
  // Asks until it is OK. Else what it was last.
  template <typename Condition>
  absl::Status Await(Condition condition, int seconds = 5) {
    const auto until = Clock::now() + seconds * second_;
    for (;;) {
      absl::Status status = condition();
      if (status.ok() || Clock::now() >= until) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // The kernel has what the books list, and these clients what is theirs: one by one, and nothing
  // else. `may_end`: leases may have ended without the client's doing, of which it was told.
  absl::Status Agree(const std::list<Holder>& holders, bool may_end);
  // Nobody has anything, and the daemon holds what it held at first.
  absl::Status AtRest();

 private:
  absl::Status LookAgree(const std::list<Holder>& holders, bool may_end);
  absl::Status LookAtRest();

  dying::Control& control_;
  const std::map<std::string, std::string> addresses_;
  const std::chrono::milliseconds second_;
  std::optional<mrd::Client> admin_;
  uint64_t admin_of_ = 0;  // Which start of a daemon.
};

}  // namespace kills

#endif  // TESTS_VM_KILLS_WORLD_H_
