// How a peer is told where it may read and write: 16 bytes of rdma_cm private data a region, in
// network byte order, so that a peer needs nothing of mrd to read them.
//
//   bytes 0-7    address
//   bytes 8-11   rkey
//   bytes 12-15  length
//
// Several regions stand one after another. Verbs may pad private data with zeros: an entry of
// length zero ends the list.
#ifndef MRD_CLIENT_REMOTE_REGION_H_
#define MRD_CLIENT_REMOTE_REGION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/region.h"

namespace mrd {

inline constexpr size_t kRemoteRegionBytes = 16;

struct RemoteRegion {
  uint64_t addr = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
};

// `region` as peers of `device` see it (empty: of its first device), over connections made from now
// on: by its newest key there (Client::AddKeys). NOT_FOUND where it has none there, OUT_OF_RANGE
// where its length does not fit into 32 bits.
absl::StatusOr<RemoteRegion> RemoteRegionOf(const Region& region, std::string_view device = {});

std::string EncodeRemoteRegion(const RemoteRegion& region);

// All that `private_data` holds; none where it is empty or does not begin with an entry.
std::vector<RemoteRegion> DecodeRemoteRegions(std::string_view private_data);

}  // namespace mrd

#endif  // MRD_CLIENT_REMOTE_REGION_H_
