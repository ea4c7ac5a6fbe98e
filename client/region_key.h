// The keys of a region, as verbs know them.
#ifndef MRD_CLIENT_REGION_KEY_H_
#define MRD_CLIENT_REGION_KEY_H_

#include <cstdint>
#include <string>

namespace mrd {

// The keys of a region on one device, in host byte order, as ibv_mr has them.
struct RegionKey {
  std::string device;
  uint64_t generation = 0;  // Of the device; keys hold in the one they were made in.
  uint32_t lkey = 0;
  uint32_t rkey = 0;

  bool operator==(const RegionKey&) const = default;
};

}  // namespace mrd

#endif  // MRD_CLIENT_REGION_KEY_H_
