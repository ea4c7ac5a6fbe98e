#include "daemon/host/metrics/listen_address.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>

#include "tests/host/temporary_dir.h"

namespace mrd::host {
namespace {

using testing::HasSubstr;

TEST(ListenAddressTest, TakesAddressesOfThisHostAlone) {
  for (const char* good : {"127.0.0.1:9464", "127.0.0.2:0", "[::1]:9464", "localhost:65535",
                           "unix:/run/mrd-admin/metrics.sock"}) {
    EXPECT_EQ(CheckListenAddress(good), "") << good;
  }
}

TEST(ListenAddressTest, RefusesAddressesThatOthersReach) {
  for (const char* open : {"0.0.0.0:9464", "10.1.2.3:9464", "[::]:9464", "[fe80::1]:9464",
                           "[::ffff:127.0.0.1]:9464", "128.0.0.1:1"}) {
    EXPECT_THAT(CheckListenAddress(open), HasSubstr("not an address of this host alone")) << open;
  }
}

TEST(ListenAddressTest, RefusesWhatIsNoAddress) {
  for (const std::string& bad :
       {std::string(), std::string(":9464"), std::string("9464"), std::string("127.0.0.1"),
        std::string("127.0.0.1:"), std::string("127.0.0.1:65536"), std::string("127.0.0.1:-1"),
        std::string("127.0.0.1:99999999999999999999"), std::string("::1:9464"),
        std::string("example.org:80"), std::string("127.0.0.1:80 "), std::string("unix:"),
        std::string("unix:relative"), "unix:/" + std::string(107, 'x')}) {
    EXPECT_NE(CheckListenAddress(bad), "") << bad;
  }
}

TEST(ListenSocketTest, ASocketInFilesHasItsModeAndGoesWithItsOwner) {
  TemporaryDir dir;
  const std::string path = dir / "m.sock";
  {
    auto socket = ListenSocket::Open("unix:" + path);
    ASSERT_TRUE(socket.ok()) << socket.status();
    struct stat found;
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, 0660u);
    const auto second = ListenSocket::Open("unix:" + path);
    EXPECT_THAT(second.status().ToString(), HasSubstr("a process listens there already"));
    EXPECT_EQ(stat(path.c_str(), &found), 0) << "the first one's is untouched";
  }
  EXPECT_EQ(dir.files(), 0u);
}

TEST(ListenSocketTest, ASocketThatIsLeftIsReplacedAndAFileIsNot) {
  TemporaryDir dir;
  {
    const UniqueFd left(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (dir / "m.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_TRUE(ListenSocket::Open("unix:" + (dir / "m.sock")).ok());
  std::ofstream(dir / "file") << "precious";
  const auto refused = ListenSocket::Open("unix:" + (dir / "file"));
  EXPECT_THAT(refused.status().ToString(), HasSubstr("no socket"));
  EXPECT_EQ(ReadAll(dir / "file"), "precious");
}

TEST(ListenSocketTest, SaysThePortThatTheKernelChoseAndWhoIsInTheWay) {
  const auto socket = ListenSocket::Open("127.0.0.1:0");
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_THAT(socket->where, testing::MatchesRegex("127.0.0.1:[1-9][0-9]*"));
  const auto second = ListenSocket::Open(socket->where);
  EXPECT_THAT(second.status().ToString(), HasSubstr("ss -ltnp"));
  EXPECT_THAT(ListenSocket::Open("unix:/nowhere/m.sock").status().ToString(),
              HasSubstr("its directory must be there"));
}

}  // namespace
}  // namespace mrd::host
