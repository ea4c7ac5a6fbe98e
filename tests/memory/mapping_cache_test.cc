#include "daemon/memory/mapping_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/memory/memfd.h"

namespace mrd::memory {
namespace {

TEST(MappingCache, KeepsTheMostRecentlyUsed) {
  Mappings mappings({.count = 2});
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (int i = 0; i < 3; ++i) buffers.push_back(MakeBuffer(MakeMemfd(4096), mappings));
  ASSERT_TRUE(buffers[0]->Map(0, 1).ok());
  ASSERT_TRUE(buffers[1]->Map(0, 1).ok());
  ASSERT_TRUE(buffers[0]->Map(0, 1).ok());
  ASSERT_TRUE(buffers[2]->Map(0, 1).ok());
  EXPECT_TRUE(buffers[0]->IsMapped(0, 1));
  EXPECT_FALSE(buffers[1]->IsMapped(0, 1));
  EXPECT_EQ(CountMappings(), 2u);
}

TEST(MappingCache, BoundsTheAddressSpaceThatItUses) {
  Mappings mappings({.count = 100, .bytes = 3 << 20});
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(MakeBuffer(MakeMemfd(1 << 20), mappings));
    ASSERT_TRUE(buffers.back()->Map(0, 1).ok());
  }
  EXPECT_EQ(mappings.cache.count(), 3u);
}

TEST(MappingCache, MapsOnlyTheRangeOfAHugeSparseBuffer) {
  Mappings mappings({.whole = 1 << 20});
  const auto buffer = MakeBuffer(MakeMemfd(uint64_t{1} << 40, /*populate=*/false), mappings);
  const auto mapping = buffer->Map(uint64_t{1} << 39, 4096);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ((*mapping)->length(), 4096u);
  EXPECT_TRUE((*mapping)->Covers(uint64_t{1} << 39, 4096));
  EXPECT_FALSE((*mapping)->Covers((uint64_t{1} << 39) - 1, 1));
}

TEST(MappingCache, AnEvictedMappingLivesAsLongAsItIsUsed) {
  Mappings mappings({.count = 1});
  const auto first = MakeBuffer(MakeMemfd(4096), mappings);
  const auto second = MakeBuffer(MakeMemfd(4096), mappings);
  auto used = first->Map(0, 1);
  ASSERT_TRUE(used.ok());
  ASSERT_TRUE(second->Map(0, 1).ok());
  EXPECT_EQ(CountMappings(), 2u);
  *static_cast<char*>((*used)->At(0)) = 'x';
  used->reset();
  EXPECT_EQ(CountMappings(), 1u);
}

}  // namespace
}  // namespace mrd::memory
