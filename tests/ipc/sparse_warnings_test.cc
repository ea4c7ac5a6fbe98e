#include "daemon/ipc/sparse_warnings.h"

#include <gtest/gtest.h>

namespace mrd::ipc {
namespace {

TEST(SparseWarnings, OneAMinuteForEachUidWithTheCountOfThoseLeftOut) {
  SparseWarnings warnings;
  auto now = SparseWarnings::Clock::now();
  EXPECT_EQ(warnings.Happened(1000, now), 0u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(warnings.Happened(1000, now), std::nullopt);
  EXPECT_EQ(warnings.Happened(1001, now), 0u) << "another's is not kept back by it";
  now += SparseWarnings::kEvery;
  EXPECT_EQ(warnings.Happened(1000, now), 500u);
  now += SparseWarnings::kEvery;
  EXPECT_EQ(warnings.Happened(1000, now), 0u);
}

}  // namespace
}  // namespace mrd::ipc
