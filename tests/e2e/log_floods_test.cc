// A client cannot fill the log, nor write into it, with what gRPC and protobuf say of it.
#include <sys/socket.h>

#include <algorithm>

#include "tests/e2e/daemon_test.h"
#include "tests/e2e/http2.h"

namespace mrd::e2e {
namespace {

class LogFloodsTest : public DaemonTest {
 protected:
  // A few lines of each kind, and no more.
  void ExpectLittleMoreThan(const std::string& before, const std::string& expected) {
    const std::string log = daemon().Log();
    EXPECT_LT(log.size(), before.size() + 4096);
    EXPECT_NE(log.find(expected, before.size()), std::string::npos) << "something is said of it";
    EXPECT_TRUE(std::all_of(log.begin(), log.end(), [](char byte) {
      return byte == '\n' || (byte >= 0x20 && byte < 0x7f);
    })) << log;
  }
};

TEST_F(LogFloodsTest, HeadersThatGrpcDoesNotLike) {
  Start();
  const std::string before = daemon().Log();
  std::string headers = Http2::CallHeaders("/mrd.v1.Sessions/GetStatus", "");
  for (int i = 0; i < 500; ++i) {  // Literals, not indexed (RFC 7541, 6.2.2).
    const std::string value = "z\n\x1b[31m";
    headers += std::string("\0\2te", 4) + static_cast<char>(value.size()) + value;
  }
  constexpr unsigned char kEndStreamAndHeaders = 5;
  Http2 connection(dir());
  for (uint32_t stream = 1; stream < 200; stream += 2) {
    ASSERT_TRUE(connection.Send({Http2::kHeaders, kEndStreamAndHeaders, stream, headers}));
    ASSERT_TRUE(connection.Read());
  }
  connection.Close();
  ExpectLittleMoreThan(before, "warning gRPC: ");
}

TEST_F(LogFloodsTest, HellosThatAreNotUtf8) {
  Start();
  const std::string before = daemon().Log();
  for (int i = 0; i < 500; ++i) {
    const AttachSocket socket(dir() + "/attach.sock");
    socket.SendBytes("\x0a\x06\x08\x01\x12\x02\xff\xfe");
    ASSERT_TRUE(socket.HangsUp());
  }
  ExpectLittleMoreThan(before, "warning protobuf: ");
}

}  // namespace
}  // namespace mrd::e2e
