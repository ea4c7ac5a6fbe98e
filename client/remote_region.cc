#include "client/remote_region.h"

#include <endian.h>
#include <string.h>

#include <limits>
#include <optional>

#include "client/local_error.h"

namespace mrd {

absl::StatusOr<RemoteRegion> RemoteRegionOf(const Region& region, std::string_view device) {
  const std::vector<RegionKey> keys = region.keys();
  const std::optional<RegionKey> key =
      device.empty() && !keys.empty() ? std::optional(keys.front()) : region.key(device);
  if (!key) {
    return internal::LocalError(absl::StatusCode::kNotFound,
                                "the region has no key on device " + std::string(device), 0,
                                "Register it there (RegisterOptions::devices).");
  }
  if (region.length() > std::numeric_limits<uint32_t>::max()) {
    return internal::LocalError(
        absl::StatusCode::kOutOfRange,
        "a region of " + std::to_string(region.length()) +
            " bytes cannot be announced: the layout has 32 bits for the length",
        0, "Register it in parts of less than 4 GiB.");
  }
  return RemoteRegion{region.addr(), key->rkey, static_cast<uint32_t>(region.length())};
}

std::string EncodeRemoteRegion(const RemoteRegion& region) {
  const uint64_t addr = htobe64(region.addr);
  const uint32_t rkey = htobe32(region.rkey);
  const uint32_t length = htobe32(region.length);
  std::string bytes(kRemoteRegionBytes, '\0');
  memcpy(bytes.data(), &addr, sizeof(addr));
  memcpy(bytes.data() + 8, &rkey, sizeof(rkey));
  memcpy(bytes.data() + 12, &length, sizeof(length));
  return bytes;
}

std::vector<RemoteRegion> DecodeRemoteRegions(std::string_view private_data) {
  std::vector<RemoteRegion> regions;
  for (; private_data.size() >= kRemoteRegionBytes;
       private_data.remove_prefix(kRemoteRegionBytes)) {
    uint64_t addr;
    uint32_t rkey, length;
    memcpy(&addr, private_data.data(), sizeof(addr));
    memcpy(&rkey, private_data.data() + 8, sizeof(rkey));
    memcpy(&length, private_data.data() + 12, sizeof(length));
    if (length == 0) break;
    regions.push_back({be64toh(addr), be32toh(rkey), be32toh(length)});
  }
  return regions;
}

}  // namespace mrd
