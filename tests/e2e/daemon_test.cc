#include "tests/e2e/daemon_test.h"

#include <signal.h>
#include <unistd.h>

namespace mrd::e2e {
namespace {

// Stacks and heaps of threads that come and go with gRPC's load; a leak per call or session of any
// of these tests is more.
constexpr size_t kMappingsOfThreads = 64;

// Of gRPC connections: how many of a client's own stand is up to it. For each the daemon has two,
// gRPC's and the one by which it sees the end.
size_t ConnectionFds(const v1::GetStatusResponse& status) {
  return 2 * status.totals().connections();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Holdings& h) {
  return out << "sessions " << h.sessions << " (listed " << h.listed_sessions << ") regions "
             << h.regions << " leases " << h.leases << " pinned_bytes " << h.pinned_bytes
             << " endpoints " << h.endpoints << " buffers " << h.buffers << " mapped "
             << h.mapped_buffers << " fds " << h.fds << " shared mappings " << h.shared_mappings
             << " on devices: " << h.on_devices;
}

void DaemonTest::Start(const DaemonOptions& options) {
  daemon_ = std::make_unique<DaemonProcess>(options);
  admin_ = std::make_unique<RawClient>(dir(), RawClient::Options{.admin = true, .name = "admin"});
  {
    // What is made once, with the first session and call.
    RawClient first(dir());
    ASSERT_TRUE(first.GetStatus().ok());
  }
  ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().listed_sessions == 1; }));
  // The closed connection's descriptors go a moment after its session.
  ASSERT_TRUE(
      WaitUntil(kPatience, [this] { return std::exchange(baseline_, Look()) == baseline_; }));
  mappings_ = daemon().resources().mappings;
}

Holdings DaemonTest::Look() {
  const auto status = admin().GetStatus();
  EXPECT_TRUE(status.ok()) << status.text();
  const auto sessions = admin().ListSessions();
  EXPECT_TRUE(sessions.ok()) << sessions.text();
  const v1::Totals& totals = status.response.totals();
  const Resources resources = daemon().resources();
  Holdings now{.sessions = totals.sessions(),
               .listed_sessions = static_cast<uint64_t>(sessions.response.sessions_size()),
               .regions = totals.regions(),
               .pinned_bytes = totals.pinned_bytes(),
               .endpoints = totals.endpoints(),
               .buffers = totals.buffers(),
               .mapped_buffers = totals.mapped_buffers(),
               .fds = resources.fds - ConnectionFds(status.response),
               .shared_mappings = resources.shared_mappings,
               .on_devices = daemon().Control("live")};
  for (const v1::Session& session : sessions.response.sessions()) now.leases += session.leases();
  return now;
}

void DaemonTest::ExpectHoldings(const Holdings& expected, milliseconds within) {
  Holdings now;
  const bool held = WaitUntil(within, [&] {
    now = Look();
    Holdings same = now;
    // Fewer: gRPC was late to close one of an earlier connection's when `expected` was counted.
    if (now.fds < expected.fds) same.fds = expected.fds;
    return same == expected;
  });
  EXPECT_TRUE(held) << "after " << within.count() << " ms\n is " << now << "\nnot " << expected;
}

void DaemonTest::Stop() {
  daemon().process().Kill(SIGTERM);
  ExpectEnd();
}

void DaemonTest::ExpectEnd() {
  admin_ = nullptr;
  EXPECT_EQ(daemon().process().ExitStatus(kPatience), 0);
  for (const char* path : {"/mrd.sock", "/attach.sock", "-admin/attach.sock"}) {
    EXPECT_NE(access((dir() + path).c_str(), F_OK), 0) << path << " is left behind";
  }
}

void DaemonTest::TearDown() {
  if (!daemon_) return;
  if (admin_) {
    ExpectNothingHeld();
    if (!kSanitized) {  // A sanitizer maps memory of its own.
      // A thread that waits for more to do takes its stack with it when it ends.
      size_t now = 0;
      WaitUntil(kPatience, [&] {
        now = daemon().resources().mappings;
        return now <= mappings_ + kMappingsOfThreads;
      });
      EXPECT_LE(now, mappings_ + kMappingsOfThreads);
    }
    Stop();
  }
  if (HasFailure()) fprintf(stderr, "the daemon's log:\n%s", daemon().Log().c_str());
}

}  // namespace mrd::e2e
