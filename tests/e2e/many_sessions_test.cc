// A thousand sessions at once, each with its gRPC connection.
#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class ManySessionsTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(ManySessionsTest);

TEST_P(ManySessionsTest, AThousandAtOnceAndAttachAndRegisterStillWork) {
  StartThis();
  const int count = Scaled(1000);
  const uint64_t before = daemon().Pss();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<RawClient>(dir()));
    ASSERT_TRUE(clients.back()->GetStatus().ok());
  }
  const uint64_t each = (daemon().Pss() - before) / count;
  printf("%llu bytes of the daemon's memory a session\n", static_cast<unsigned long long>(each));
  if (!kSanitized) {
    EXPECT_LE(each, 60000u);
  }
  EXPECT_EQ(Look().sessions, static_cast<uint64_t>(count) + 1);

  const auto began = Clock::now();
  const Memory memory(kPage);
  RawClient one_more(dir());
  const v1::Lease lease = one_more.RegisterAll(memory);
  EXPECT_TRUE(one_more.Deregister({lease.lease_id()}).ok());
  EXPECT_LT(Clock::now() - began, Promised(seconds(1)));
  for (const auto& client : clients) {
    const v1::Lease held = client->RegisterAll(memory);
    EXPECT_NE(held.lease_id(), 0u);
  }
  EXPECT_EQ(Look().regions, static_cast<uint64_t>(count));
  for (const auto& client : clients) client->HangUp();
  one_more.HangUp();
  EXPECT_TRUE(WaitUntil(Promised(seconds(1)), [this] { return Look().listed_sessions == 1; }));
}

}  // namespace
}  // namespace mrd::e2e
