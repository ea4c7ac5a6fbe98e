#include "client/remote_region.h"

#include <gtest/gtest.h>

namespace mrd {
namespace {

TEST(RemoteRegion, HasTheDocumentedLayout) {
  const std::string bytes =
      EncodeRemoteRegion({.addr = 0x0102030405060708, .rkey = 0x090a0b0c, .length = 0x0d0e0f10});
  EXPECT_EQ(bytes, std::string("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"));
}

TEST(RemoteRegion, IsReadBackWithPaddingBehindIt) {
  const std::string bytes = EncodeRemoteRegion({0x650000001000, 7, 4096}) +
                            EncodeRemoteRegion({0x650000002000, 8, 1}) + std::string(20, '\0');
  const auto regions = DecodeRemoteRegions(bytes);
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].addr, 0x650000001000u);
  EXPECT_EQ(regions[0].rkey, 7u);
  EXPECT_EQ(regions[0].length, 4096u);
  EXPECT_EQ(regions[1].rkey, 8u);
}

TEST(RemoteRegion, IsNotReadFromLess) {
  EXPECT_TRUE(DecodeRemoteRegions("").empty());
  EXPECT_TRUE(DecodeRemoteRegions(EncodeRemoteRegion({1, 2, 3}).substr(0, 15)).empty());
  EXPECT_TRUE(DecodeRemoteRegions(std::string(56, '\0')).empty());
}

TEST(RemoteRegion, OfNoRegionIsAnError) {
  const Region none;
  EXPECT_EQ(RemoteRegionOf(none).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(RemoteRegionOf(none, "rxe0").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace mrd
