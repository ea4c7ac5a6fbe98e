// What devices and the kernel refuse, each errno with its reason: on faked verbs.
#include <sstream>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

// Where devices that ignore iova take buffers (design: ThreadSanitizer has its own place).
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kWindow = 0x7e8000000000;
constexpr uint64_t kWindowEnd = 0x7f0000000000;
#else
constexpr uint64_t kWindow = 0x650000000000;
constexpr uint64_t kWindowEnd = 0x700000000000;
#endif

class DeviceTest : public RefusalTest<DaemonTest> {
 protected:
  void StartWith(const std::string& settings = "") {
    Start({.fabric = "verbs", .devices = "devices=fake0" + settings});
  }
  v1::RegisterRequest Good(RawClient& client) {
    return RequestFor(Pass(client, memory_.fd()), memory_);
  }
  const Memory memory_{4 * kPage};
};

TEST_F(DeviceTest, EachErrnoOfARegistrationHasItsReason) {
  StartWith();
  RawClient client(dir());
  const auto plain = Good(client);
  auto special = plain;
  special.mutable_access()->add_flags(v1::REMOTE_ATOMIC);
  const struct {
    const char* error;
    v1::Reason reason;
    const v1::RegisterRequest& request;
  } cases[] = {
      {"EINVAL", v1::DEVICE_ERROR, plain},     {"EINVAL", v1::ACCESS_UNSUPPORTED, special},
      {"EFAULT", v1::ADDRESS_UNUSABLE, plain}, {"ENOMEM", v1::DEVICE_LIMIT, plain},
      {"ENOSPC", v1::DEVICE_LIMIT, plain},     {"EOPNOTSUPP", v1::UNSUPPORTED, plain},
      {"EACCES", v1::DEVICE_ERROR, plain},     {"EPERM", v1::DEVICE_ERROR, plain},
      {"EMFILE", v1::DEVICE_ERROR, plain},     {"EINTR", v1::DEVICE_ERROR, plain},
      {"EIO", v1::DEVICE_REMOVED, plain},      {"ENODEV", v1::DEVICE_REMOVED, plain},
  };
  for (const bool used_before : {false, true}) {
    if (used_before) {
      ASSERT_TRUE(client.Register(plain).ok());
    }
    for (const auto& each : cases) {
      SCOPED_TRACE(std::string(each.error) + (used_before ? ", buffer and domain used" : ""));
      daemon().Control(std::string("fail fake0 reg ") + each.error + "@1");
      const auto answer = Refused(client, each.request, each.reason);
      EXPECT_EQ(answer.detail.errno_name(), each.error);
    }
  }
  EXPECT_TRUE(client.Register(plain).ok()) << "and then all is well again";
}

TEST_F(DeviceTest, TheTenthOfTenRangesFailsAndNineAreTakenBack) {
  StartWith();
  RawClient client(dir());
  auto request = Good(client);
  for (int i = 1; i < 10; ++i) *request.add_ranges() = request.ranges(0);
  daemon().Control("fail fake0 reg ENOMEM@10");
  Refused(client, request, v1::DEVICE_LIMIT);
  EXPECT_TRUE(client.Register(request).ok());
}

TEST_F(DeviceTest, DeviceLimitOfRegions) {
  StartWith(";fake0.max_mr=3");
  RawClient client(dir());
  const auto good = Good(client);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.Register(good).ok());
  const auto answer = Refused(client, good, v1::DEVICE_LIMIT);
  ExpectLimit(answer, "of device fake0", 3, 3);
  EXPECT_EQ(answer.detail.errno_name(), "ENOMEM");
}

TEST_F(DeviceTest, DeviceLimitOfARegionsLength) {
  StartWith(";fake0.max_mr_size=12288");
  RawClient client(dir());
  auto request = Good(client);
  const auto answer = Refused(client, request, v1::DEVICE_LIMIT);
  ExpectLimit(answer, "max_mr_size of device fake0", 12288, 0);
  request.mutable_ranges(0)->set_length(12288);
  EXPECT_TRUE(client.Register(request).ok()) << "never shortened, so the limit itself is taken";
}

TEST_F(DeviceTest, DeviceLimitOfDomains) {
  StartWith(";fake0.max_pd=1");
  RawClient first(dir());
  RawClient second(dir());
  first.RegisterAll(memory_);
  const auto answer = Refused(second, Good(second), v1::DEVICE_LIMIT);
  ExpectLimit(answer, "of device fake0", 1, 1);
  EXPECT_EQ(answer.detail.errno_name(), "ENOMEM");
  first.HangUp();
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return second.Register(RequestFor(1, memory_)).ok(); }));
}

TEST_F(DeviceTest, Memlock) {
  StartWith();
  RawClient client(dir());
  const auto request = Good(client);
  daemon().Control("memlock 65536 61440 0");  // Without CAP_IPC_LOCK.
  daemon().Control("fail fake0 reg ENOMEM");
  auto answer = Refused(client, request, v1::MEMLOCK);
  ExpectLimit(answer, "RLIMIT_MEMLOCK", 65536, 61440);
  EXPECT_EQ(answer.detail.errno_name(), "ENOMEM");
  EXPECT_NE(answer.detail.advice().find("CAP_IPC_LOCK"), std::string::npos);
  // With the capability the limit is not asked: the same errno means the device.
  daemon().Control("memlock 65536 61440 1");
  Refused(client, request, v1::DEVICE_LIMIT);
  // Nor where the limit has room.
  daemon().Control("memlock 1048576 0 0");
  Refused(client, request, v1::DEVICE_LIMIT);
}

TEST_F(DeviceTest, ErrorsOfADomain) {
  StartWith();
  RawClient client(dir());
  const auto request = Good(client);
  const struct {
    const char* error;
    v1::Reason reason;
  } cases[] = {{"ENOMEM", v1::DEVICE_LIMIT},
               {"EIO", v1::DEVICE_REMOVED},
               {"EACCES", v1::DEVICE_ERROR},
               {"EINVAL", v1::DEVICE_ERROR}};
  for (const auto& each : cases) {
    SCOPED_TRACE(each.error);
    daemon().Control(std::string("fail fake0 pd ") + each.error + "@1");
    EXPECT_EQ(Refused(client, request, each.reason).detail.errno_name(), each.error);
  }
  EXPECT_TRUE(client.Register(request).ok());
}

TEST_F(DeviceTest, WhatADeviceLacksIsRefusedByName) {
  StartWith(";fake0.atomics=0");
  RawClient client(dir());
  const auto good = Good(client);
  for (const auto flag : {v1::REMOTE_ATOMIC, v1::ON_DEMAND}) {
    auto request = good;
    request.mutable_access()->add_flags(flag);
    const auto answer = Refused(client, request, v1::ACCESS_UNSUPPORTED);
    EXPECT_NE(answer.status.error_message().find(v1::AccessFlag_Name(flag)), std::string::npos);
  }
  const DaemonProcess able(
      {.fabric = "verbs", .devices = "devices=fake0;fake0.atomics=1;fake0.odp=1"});
  RawClient other(able.dir());
  for (const auto flag : {v1::REMOTE_ATOMIC, v1::ON_DEMAND}) {
    auto request = RequestFor(other.Pass(memory_), memory_);
    request.mutable_access()->add_flags(flag);
    const auto answer = other.Register(request);
    EXPECT_TRUE(answer.ok()) << answer.text();
  }
}

TEST_F(DeviceTest, ADeviceThatIgnoresTheAddressTakesBuffersInTheWindowOnly) {
  StartWith(";fake0.transport=iwarp");
  RawClient client(dir());
  EXPECT_FALSE(client.ListDevices().response.devices(0).any_address());
  const Memory inside(4 * kPage, {.at = kWindow});
  const uint64_t id = Pass(client, inside.fd());
  EXPECT_TRUE(client.Register(RequestFor(id, inside)).ok());
  const uint64_t outside[] = {
      0x10000000,    kPage, 0x650000000000 - kPage, 0x700000000000, 0x7e8000000000 - kPage,
      0x7f0000000000};
  for (const uint64_t addr : outside) {
    SCOPED_TRACE(addr);
    Refused(client, RequestFor(id, addr, kPage), v1::ADDRESS_UNUSABLE);
  }
  // The last pages of the window, of which the buffer would reach out.
  Refused(client, RequestFor(id, kWindowEnd - kPage, kPage), v1::ADDRESS_UNUSABLE);
  EXPECT_TRUE(client.Register(RequestFor(id, kWindowEnd - 4 * kPage, kPage)).ok());
}

TEST_F(DeviceTest, TwoClientsMayUseTheSameAddressesOfTheWindow) {
  StartWith(";fake0.transport=iwarp");
  RawClient one(dir());
  RawClient two(dir());
  const Memory memory(4 * kPage);
  const Memory other(4 * kPage);
  const uint64_t first = one.Pass(memory);
  const uint64_t second = two.Pass(other);
  for (int i = 0; i < Scaled(100); ++i) {
    const auto a = one.Register(RequestFor(first, kWindow, kPage));
    const auto b = two.Register(RequestFor(second, kWindow, kPage));
    ASSERT_TRUE(a.ok() && b.ok()) << a.text() << b.text();
    EXPECT_EQ(a.response.leases(0).addr(), b.response.leases(0).addr());
  }
}

TEST_F(DeviceTest, NothingOfTheDaemonsCanBeMappedOver) {
  StartWith(";fake0.transport=iwarp");
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t id = Pass(client, memory.fd());
  // Where the daemon's own program, heap, libraries and stack are.
  std::istringstream maps(ReadFile("/proc/" + std::to_string(daemon().pid()) + "/maps"));
  std::string line;
  int tried = 0;
  while (std::getline(maps, line) && tried < 40) {
    const uint64_t addr = strtoull(line.c_str(), nullptr, 16);
    if (line.find("vsyscall") != std::string::npos) continue;
    ++tried;
    Refused(client, RequestFor(id, addr, kPage), v1::ADDRESS_UNUSABLE);
  }
  EXPECT_GT(tried, 10);
}

}  // namespace
}  // namespace mrd::e2e
