// Many clients, one after another or all at once.
#include <sstream>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class ChurnTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(ChurnTest);

TEST_P(ChurnTest, AThousandClientsDieAtRandomMomentsAndNothingIsLeft) {
  StartThis();
  const bool soft = GetParam() == std::string("soft");
  const int count = kSanitized ? 50 : soft ? 1000 : 200;
  Process clients({.argv = {"tests/e2e/churn_client", dir(), std::to_string(count), "20"}});
  const auto line = clients.Read(seconds(240));
  ASSERT_TRUE(line) << "they end";
  const auto last = Clock::now();
  ExpectNothingHeld(Promised(seconds(1)));
  printf("all zero %lld us after the last; of %d clients attached and registered: %s\n",
         static_cast<long long>(
             std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last).count()),
         count, line->c_str());
  // They died at every stage, or this has shown nothing.
  int attached = 0;
  int registered = 0;
  std::istringstream(*line) >> attached >> registered;
  EXPECT_GT(registered, count / 20);
  EXPECT_GT(attached, registered);
  EXPECT_LT(attached, count * 19 / 20);
  EXPECT_EQ(clients.ExitStatus(), 0);
}

}  // namespace
}  // namespace mrd::e2e
