#include "daemon/broker/page.h"

#include <gtest/gtest.h>

#include <random>

namespace mrd::broker {
namespace {

struct View {
  uint64_t id;
};

TEST(PageOf, HasTheFirstOnesWhateverTheOrder) {
  std::mt19937 random(3);
  for (const size_t count : {0, 1, 9, 10, 11, 12, 500}) {
    std::vector<uint64_t> ids(count);
    for (size_t i = 0; i < count; ++i) ids[i] = 10 * (i + 1);
    std::shuffle(ids.begin(), ids.end(), random);
    PageOf<View> page(10);
    for (const uint64_t id : ids) {
      if (page.Wants(id)) page.Add(id + 1, {id});
    }
    uint64_t next = 7;
    const auto first = page.Take(&next);
    ASSERT_EQ(first.size(), std::min<size_t>(count, 10));
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].second.id, 10 * (i + 1));
      EXPECT_EQ(first[i].first, 10 * (i + 1) + 1);
    }
    EXPECT_EQ(next, count > 10 ? 100u : 0u);
  }
}

TEST(PageOf, WantsNoMoreThanMayBeOnIt) {
  PageOf<View> page(10);
  size_t added = 0;
  for (uint64_t session = 0; session < 1000; ++session) {
    for (uint64_t i = 0; i < 11 && page.Wants(1000 * i + session + 1); ++i, ++added) {
      page.Add(session, {1000 * i + session + 1});
    }
  }
  EXPECT_LT(added, 100u) << "of 11,000";
}

}  // namespace
}  // namespace mrd::broker
