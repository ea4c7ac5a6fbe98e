// What a user does with many processes, groups and cancelled calls: bounded by user, and the
// operator, whose uid a container may have as well, is never kept out.
#include <fcntl.h>
#include <grp.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <thread>

#include "mrd/v1/registration.grpc.pb.h"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

// Another process of this uid, without gRPC. It does `work` and stays, with what that has opened.
class Child {
 public:
  explicit Child(const std::function<bool()>& work) {
    int ends[2];
    Require(pipe2(ends, O_CLOEXEC) == 0, "a pipe");
    done_ = UniqueFd(ends[0]);
    const UniqueFd tell(ends[1]);
    pid_ = fork();
    Require(pid_ >= 0, "fork");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char answer = work() ? 'y' : 'n';
    if (write(tell.get(), &answer, 1) != 1) _exit(1);
    for (;;) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // What `work` has returned.
  bool Did() const {
    char answer = 'n';
    return read(done_.get(), &answer, 1) == 1 && answer == 'y';
  }

 private:
  UniqueFd done_;
  pid_t pid_;
};

class HostileUsersTest : public DaemonTest {
 protected:
  // Of this process, or a child's.
  bool Attaches(std::vector<AttachSocket>* sessions) {
    sessions->emplace_back(dir() + "/attach.sock");
    sessions->back().SendHello();
    const auto packet = sessions->back().Receive();
    return packet && packet->has_welcome();
  }

  const Memory memory_{kPage};
};

TEST_F(HostileUsersTest, AContainersUidZeroKeepsNoAdminOut) {
  ASSERT_EQ(getuid(), 0u) << "an admin's";
  Start({.policy = "rules { name: \"root\" uid: 0 limits { connections: 20 sessions: 30 } }"});
  std::vector<AttachSocket> sessions;
  std::vector<UniqueFd> connections;
  const Child pod([&] {
    for (int i = 0; i < 30; ++i) {
      if (!Attaches(&sessions)) return false;
    }
    for (int i = 0; i < 40; ++i) connections.push_back(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    return true;
  });
  ASSERT_TRUE(pod.Did());
  const AttachSocket one_more(dir() + "/attach.sock");
  ASSERT_TRUE(one_more.SendHello());
  EXPECT_EQ(one_more.ReceiveRefusal(), v1::QUOTA_SESSIONS) << "the pod has them all";
  Process mrctl({.argv = {"client/mrctl/mrctl", "sessions", "--socket-dir=" + dir()}});
  const std::string shown = mrctl.ReadAll();
  EXPECT_EQ(mrctl.ExitStatus(), 0);
  EXPECT_NE(shown.find("SESSION"), std::string::npos) << shown;
}

TEST_F(HostileUsersTest, MoreGroupsThanAreLookedAtAreRefusedByName) {
  ASSERT_EQ(getuid(), 0u) << "setgroups(2) needs it";
  Start({.policy = "rules { name: \"some\" gid_range { first: 1 last: 4000 } deny: true }"});
  const auto with = [&](size_t count, const std::function<bool()>& check) {
    return Child([&] {
             std::vector<gid_t> groups(count);
             std::iota(groups.begin(), groups.end(), 5000);
             return setgroups(count, groups.data()) == 0 && check();
           })
        .Did();
  };
  std::vector<AttachSocket> sessions;
  EXPECT_TRUE(with(1024, [&] { return Attaches(&sessions); }));
  EXPECT_TRUE(with(65536, [&] {
    const AttachSocket refused(dir() + "/attach.sock");
    return refused.SendHello() && refused.ReceiveRefusal() == v1::UNSUPPORTED;
  }));
  EXPECT_TRUE(with(65536, [&] {
    const UniqueFd closed(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    char byte;
    return recv(closed.get(), &byte, 1, 0) <= 0;
  }));
}

TEST_F(HostileUsersTest, CancelledCallsCountAsLongAsTheDaemonWorksOnThem) {
  constexpr int kMost = 40;
  Start({.fabric = "verbs",
         .devices = "devices=fake0;fake0.reg_delay_ms=4000",
         .set = "calls_of_uid=" + std::to_string(kMost)});
  RawClient hog(dir());
  RawClient other(dir());  // Of the same user.
  const auto request = RequestFor(hog.Pass(memory_), memory_);
  std::thread first([&] { EXPECT_TRUE(hog.Register(request).ok()); });
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().regions == 1; })) << "it has booked";
  const auto stub = v1::Registration::NewStub(MakeChannel(dir()));
  for (int i = 0; i < 2 * kMost; ++i) {
    grpc::ClientContext context;
    hog.Prepare(&context, milliseconds(10));
    v1::RegisterResponse response;
    EXPECT_FALSE(stub->Register(&context, request, &response).ok());
  }
  const auto refused = other.GetStatus();
  ExpectRefusal(refused, v1::BUSY);
  ExpectLimit(refused, "calls in flight of the user", kMost, kMost);
  EXPECT_TRUE(other.Renew().ok()) << "leases do not lapse by it";
  EXPECT_TRUE(admin().GetStatus().ok()) << "of the same uid";
  first.join();
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return other.GetStatus().ok(); }));
}

TEST_F(HostileUsersTest, CallsThatWaitLetNoLeaseLapse) {
  Start({.set = "calls=2"});
  RawClient client(dir());
  auto request = RequestFor(client.Pass(memory_), memory_);
  request.mutable_ttl()->set_seconds(600);
  ASSERT_TRUE(client.Register(request).ok());
  const auto listener = client.Listen("");
  ASSERT_TRUE(listener.ok()) << listener.text();
  std::vector<std::thread> accepts;
  for (int i = 0; i < 2; ++i) {
    accepts.emplace_back(
        [&] { client.Accept(listener.response.endpoint().endpoint_id(), seconds(3)); });
  }
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return Look().endpoints == 3; })) << "both wait";
  EXPECT_EQ(client.GetStatus().reason(), v1::BUSY);
  const auto renewed = client.Renew();
  EXPECT_TRUE(renewed.ok()) << renewed.text();
  for (std::thread& accept : accepts) accept.join();
}

}  // namespace
}  // namespace mrd::e2e
