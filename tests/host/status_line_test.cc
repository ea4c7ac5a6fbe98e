#include "daemon/host/status_line.h"

#include <gmock/gmock.h>

#include "tests/broker/broker_fixture.h"

namespace mrd::host {
namespace {

class StatusLineTest : public broker::BrokerTest {};

TEST_F(StatusLineTest, CountsSessionsRegionsAndBytes) {
  EXPECT_EQ(StatusLine(*broker_), "0 sessions, 0 regions, 0 B");
  const auto session = Attach();
  Pass(session, 1);
  EXPECT_EQ(StatusLine(*broker_), "1 session, 0 regions, 0 B");
  ASSERT_TRUE(Register(session, Spec({Range(0, 4096), Range(4096, 8192)})).ok());
  EXPECT_EQ(StatusLine(*broker_), "1 session, 2 regions, 12.0 KiB");
}

TEST_F(StatusLineTest, SaysThatTheDaemonIsDrained) {
  const auto admin = Attach(0);
  broker_->StartDrain(*admin, "new kernel", std::nullopt);
  EXPECT_EQ(StatusLine(*broker_), "drained: 1 session, 0 regions, 0 B");
  broker_->StopDrain(*admin);
  EXPECT_EQ(StatusLine(*broker_), "1 session, 0 regions, 0 B");
}

TEST_F(StatusLineTest, SaysThatTheDaemonEnds) {
  broker_->Drain([] {});
  EXPECT_EQ(StatusLine(*broker_), "ending: 0 sessions, 0 regions, 0 B");
}

TEST(BytesForPeople, AreShort) {
  EXPECT_EQ(BytesForPeople(0), "0 B");
  EXPECT_EQ(BytesForPeople(1023), "1023 B");
  EXPECT_EQ(BytesForPeople(1024), "1.0 KiB");
  EXPECT_EQ(BytesForPeople((uint64_t{1} << 20) - 1), "1023.9 KiB");
  EXPECT_EQ(BytesForPeople(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(BytesForPeople(UINT64_MAX), "16383.9 PiB");
}

}  // namespace
}  // namespace mrd::host
