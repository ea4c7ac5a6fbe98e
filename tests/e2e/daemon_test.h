// The fixture of every end-to-end test: a real daemon which, when the test is over, holds nothing
// more than before - books, descriptors, mappings, objects on the devices - and ends in order.
#ifndef MRD_TESTS_E2E_DAEMON_TEST_H_
#define MRD_TESTS_E2E_DAEMON_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_client.h"

namespace mrd::e2e {

// All that the daemon holds for clients.
struct Holdings {
  uint64_t sessions = 0;
  uint64_t listed_sessions = 0;
  uint64_t regions = 0;
  uint64_t leases = 0;
  uint64_t pinned_bytes = 0;
  uint64_t endpoints = 0;
  uint64_t buffers = 0;
  uint64_t mapped_buffers = 0;
  size_t fds = 0;  // But for those of gRPC connections.
  size_t shared_mappings = 0;
  std::string on_devices;  // Of the faked verbs.

  bool operator==(const Holdings&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Holdings& holdings);

class DaemonTest : public testing::Test {
 protected:
  // Once a test, first of all.
  void Start(const DaemonOptions& options = {});
  // SIGTERM, and what ExpectEnd says.
  void Stop();
  // It ends with status 0 and leaves no socket. What it holds is not looked at any more.
  void ExpectEnd();
  // It ended in another way, which the test has looked at.
  void Abandon() { admin_ = nullptr; }

  DaemonProcess& daemon() { return *daemon_; }
  const std::string& dir() const { return daemon_->dir(); }
  RawClient& admin() { return *admin_; }
  const Holdings& baseline() const { return baseline_; }

  // What it holds now; the admin session that asks counts.
  Holdings Look();
  // The daemon's holdings are these, or become so within this time.
  void ExpectHoldings(const Holdings& expected, milliseconds within = kPatience);
  // All that was made since Start is gone within this time.
  void ExpectNothingHeld(milliseconds within = kPatience) { ExpectHoldings(baseline_, within); }

  void TearDown() override;

 private:
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<RawClient> admin_;
  Holdings baseline_;
  size_t mappings_ = 0;
};

// The same test on fabric soft and on faked verbs.
class EachFabricTest : public DaemonTest, public testing::WithParamInterface<const char*> {
 protected:
  void StartThis(DaemonOptions options = {}) {
    options.fabric = GetParam();
    Start(options);
  }
  std::string device() const { return GetParam() == std::string("soft") ? "soft0" : "fake0"; }
  // An address that endpoints may have.
  std::string address() const { return GetParam() == std::string("soft") ? "" : "10.99.0.1"; }
};

inline std::string FabricName(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

#define MRD_ON_EACH_FABRIC(Suite) \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::Values("soft", "verbs"), mrd::e2e::FabricName)

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_DAEMON_TEST_H_
