// Sets of user or group ids as a rule names them.
#ifndef MRD_DAEMON_BROKER_POLICY_ID_SET_H_
#define MRD_DAEMON_BROKER_POLICY_ID_SET_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace mrd::policy {

// The id that one which this user namespace does not know is shown as
// (/proc/sys/kernel/overflowuid): it may be anybody's, so that only who lists it by itself can have
// meant it.
inline constexpr uint32_t kOverflowId = 65534;

// A value; made by Add, then Seal.
class IdSet {
 public:
  void Add(uint32_t id) { AddSpan(id, id); }
  // REQUIRES: first <= last.
  void AddRange(uint32_t first, uint32_t last);
  void AddAll() { AddRange(0, UINT32_MAX); }
  // Sorts and joins; before anything is asked.
  void Seal();

  bool Contains(uint32_t id) const;
  bool Covers(const IdSet& other) const;
  bool operator==(const IdSet&) const = default;

 private:
  void AddSpan(uint32_t first, uint32_t last) { spans_.emplace_back(first, last); }

  std::vector<std::pair<uint32_t, uint32_t>> spans_;  // First and last; sorted, apart from another.
};

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_ID_SET_H_
