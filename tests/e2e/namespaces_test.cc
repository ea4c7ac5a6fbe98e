// Clients and daemon that do not see the same files.
#include <fcntl.h>
#include <unistd.h>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class NamespacesTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(NamespacesTest);

TEST_P(NamespacesTest, S13AClientWithADevShmOfItsOwnRegistersAll) {
  StartThis({.set = "unsealed=1"});
  Process client({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(client.Ask("own_shm"), "ok");
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  // A memfd of the library's.
  ASSERT_EQ(client.Ask("buffer 65536"), "ok");
  EXPECT_EQ(client.Ask("register 4").substr(0, 2), "ok");
  // POSIX shared memory in its own /dev/shm, which is not here.
  const std::string name = "/mrd-test-" + std::to_string(getpid());
  ASSERT_EQ(client.Ask("shm " + name + " 65536"), "ok");
  EXPECT_NE(access(("/dev/shm" + name).c_str(), F_OK), 0);
  EXPECT_EQ(client.Ask("register 4").substr(0, 2), "ok");
  EXPECT_EQ(Look().regions, 8u);
}

TEST_P(NamespacesTest, S13WithoutTheOperatorsWordItsShmIsRefusedAndItsMemfdIsNot) {
  StartThis();
  Process client({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(client.Ask("own_shm"), "ok");
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(client.Ask("shm /any 65536"), "ok");
  const std::string refused = client.Ask("register 1");
  EXPECT_NE(refused.find("FAILED_PRECONDITION"), std::string::npos) << refused;
  EXPECT_NE(refused.find("seal"), std::string::npos) << refused;
  ASSERT_EQ(client.Ask("buffer 65536"), "ok");
  EXPECT_EQ(client.Ask("register 1").substr(0, 2), "ok");
}

}  // namespace
}  // namespace mrd::e2e
