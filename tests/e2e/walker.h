// A client that takes a random walk: it registers, ends, renews and lets lapse, opens and closes,
// is refused and hangs up, and knows at each step what it must hold. Ends the process where the
// daemon says otherwise.
#ifndef MRD_TESTS_E2E_WALKER_H_
#define MRD_TESTS_E2E_WALKER_H_

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/raw_client.h"

namespace mrd::e2e {

// What a session holds; `private_domains` are protection domains on devices.
struct Held {
  uint64_t session = 0;
  uint64_t regions = 0;
  uint64_t bytes = 0;
  uint64_t leases = 0;
  uint64_t buffers = 0;
  uint64_t endpoints = 0;
  uint64_t private_domains = 0;
  uint64_t regions_in_named = 0;

  bool operator==(const Held&) const = default;
};

// How often what was done; for people, and for a test to know that its walk went everywhere.
struct Walked {
  uint64_t steps = 0;
  uint64_t registered = 0;
  uint64_t lapsed = 0;
  uint64_t revoked = 0;
  uint64_t refused = 0;
  uint64_t quotas = 0;  // Of the refusals.
  uint64_t faults = 0;  // Of the refusals: the device failed.
  uint64_t hang_ups = 0;
};

// Not thread-safe.
class Walker {
 public:
  // `seed` says each step; what they meet depends on the other walkers too.
  Walker(const std::string& dir, unsigned seed);

  void Walk(int steps);
  // Waits for all that lapses soon, and compares what is left with what the daemon lists.
  void Settle();
  // Ends all that it has in named domains, and leaves them.
  void LeaveDomains();

  Held held() const;
  const Walked& walked() const { return walked_; }

 private:
  struct Lease {
    uint64_t regions;
    uint64_t bytes;
    bool brief;  // Has a ttl that is soon over.
    std::string domain;
  };

  int Any(int below) { return static_cast<int>(random_() % below); }
  bool Chance(int percent) { return Any(100) < percent; }
  template <typename Map>
  typename Map::key_type AnyKey(const Map& map) {
    return std::next(map.begin(), Any(static_cast<int>(map.size())))->first;
  }

  void Step();
  void Attach();
  void Pass();
  void Release();
  void Register();
  void Repeat(const v1::RegisterRequest& request, const v1::RegisterResponse& first);
  void RegisterBadly();
  void Deregister();
  // The daemon says that one of these is no more: its event comes, or has come.
  void AwaitEndOfOne(const std::set<uint64_t>& ids);
  void Renew();
  void List();
  void Join();
  void Leave();
  void Listen();
  void Disconnect();

  // A request of this session's buffers that is as it should be. REQUIRES: there are buffers.
  v1::RegisterRequest AnyRequest();
  void Note(const v1::RegisterRequest& request, const v1::RegisterResponse& made);
  // Takes what has come on the attach socket; waits so long for a first packet.
  void TakeEvents(milliseconds wait);
  std::set<uint64_t> Listed();
  // REQUIRES: the answer is a refusal for one of these reasons.
  template <typename Answer>
  void Refused(const Answer& answer, const std::set<v1::Reason>& reasons);

  const std::string dir_;
  std::mt19937 random_;
  std::vector<Memory> memories_;
  std::unique_ptr<RawClient> client_;
  std::map<uint64_t, const Memory*> buffers_;
  std::map<uint64_t, Lease> leases_;
  std::set<uint64_t> endpoints_;
  std::set<std::string> joined_;
  std::set<std::string> private_devices_;
  uint64_t requests_ = 0;
  Walked walked_;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_WALKER_H_
