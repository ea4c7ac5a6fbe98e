// Which uids have series of their own. They come and go with containers, and user namespaces have
// tens of thousands: those that hold most are shown, the others together as one.
#ifndef MRD_DAEMON_HOST_METRICS_UIDS_H_
#define MRD_DAEMON_HOST_METRICS_UIDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>

#include "daemon/broker/books.h"

namespace mrd::host {

class UidLabels {
 public:
  static constexpr size_t kMost = 1000;

  // `used`: of all that hold something.
  explicit UidLabels(const std::map<uint32_t, broker::Amounts>& used, size_t most = kMost);

  // "1000", or "other".
  std::string Of(uint32_t uid) const;

 private:
  bool all_;
  std::unordered_set<uint32_t> shown_;  // Where not all are.
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_UIDS_H_
