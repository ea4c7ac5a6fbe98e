// Registrations whose parameters say something that cannot be.
#include <limits>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

class ValuesTest : public RefusalTest<EachFabricTest> {
 protected:
  // One range of a good buffer, for each test to spoil.
  v1::RegisterRequest Good(RawClient& client) {
    return RequestFor(Pass(client, memory_.fd()), memory_);
  }
  v1::RegisterRequest WithRange(v1::RegisterRequest request, uint64_t offset, uint64_t length,
                                uint64_t addr) {
    request.clear_ranges();
    AddRange(&request, 1, addr, length, offset);
    return request;
  }

  const Memory memory_{4 * kPage};
};
MRD_ON_EACH_FABRIC(ValuesTest);

TEST_P(ValuesTest, InvalidLength) {
  StartThis();
  RawClient client(dir());
  auto request = Good(client);
  Refused(client, WithRange(request, 0, 0, memory_.addr()), v1::INVALID_LENGTH);
  request.clear_ranges();
  ExpectLimit(Refused(client, request, v1::INVALID_LENGTH), "ranges in one call", 10000, 0);
  for (int i = 0; i < 10001; ++i) AddRange(&request, 1, memory_.addr(), kPage);
  ExpectLimit(Refused(client, request, v1::INVALID_LENGTH), "ranges in one call", 10000, 0);
}

TEST_P(ValuesTest, TenThousandRangesAreNotTooMany) {
  StartThis();
  RawClient client(dir());
  auto request = Good(client);
  for (int i = 1; i < 10000; ++i) AddRange(&request, 1, memory_.addr(), kPage);
  const auto answer = client.Register(request);
  EXPECT_TRUE(answer.ok()) << answer.text();
  EXPECT_EQ(answer.response.leases_size(), 10000);
  // And their end, by the session's: within a second.
  client.HangUp();
  ExpectNothingHeld(Promised(seconds(1)));
}

TEST_P(ValuesTest, OutOfRange) {
  StartThis();
  RawClient client(dir());
  const auto good = Good(client);
  const uint64_t size = memory_.size();
  const struct {
    uint64_t offset, length;
  } cases[] = {
      {0, size + 1},
      {size, 1},
      {size - 1, 2},
      {size + kPage, 1},
      {0, kMost},                      // SIZE_MAX
      {kPage, kMost},                  // offset + length overflows
      {kMost - kPage + 1, 2 * kPage},  // to a sum within the buffer
      {kMost, 1},
      {kMost, kMost},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(std::to_string(each.offset) + ", " + std::to_string(each.length));
    const auto answer = Refused(client, WithRange(good, each.offset, each.length, memory_.addr()),
                                v1::OUT_OF_RANGE);
    ExpectLimit(answer, "bytes of the buffer", size, 0);
  }
}

TEST_P(ValuesTest, BufferUnknown) {
  StartThis();
  RawClient client(dir());
  auto request = Good(client);
  for (const uint64_t id : {uint64_t{0}, uint64_t{2}, kMost}) {
    request.mutable_ranges(0)->set_buffer_id(id);
    Refused(client, request, v1::BUFFER_UNKNOWN);
  }
}

TEST_P(ValuesTest, ABufferOfAnotherSessionIsUnknown) {
  StartThis();
  RawClient client(dir());
  const auto request = Good(client);
  ASSERT_TRUE(client.Register(request).ok());
  RawClient stranger(dir());
  EXPECT_EQ(stranger.Register(request).reason(), v1::BUFFER_UNKNOWN);
}

TEST_P(ValuesTest, Misaligned) {
  StartThis();
  RawClient client(dir());
  const auto good = Good(client);
  Refused(client, WithRange(good, 0, kPage, memory_.addr() + 1), v1::MISALIGNED);
  Refused(client, WithRange(good, 8, kPage, memory_.addr()), v1::MISALIGNED);
  Refused(client, WithRange(good, 0, 1, 0xfff), v1::MISALIGNED);
}

TEST_P(ValuesTest, AddressUnusable) {
  StartThis();
  RawClient client(dir());
  const auto good = Good(client);
  Refused(client, WithRange(good, 0, 2 * kPage, kMost - kPage + 1), v1::ADDRESS_UNUSABLE);
  Refused(client, WithRange(good, 4095, 2 * kPage, kMost), v1::ADDRESS_UNUSABLE);
}

TEST_P(ValuesTest, AccessInvalid) {
  StartThis();
  RawClient client(dir());
  const auto good = Good(client);
  const auto with = [&](int preset, std::vector<int> flags) {
    auto request = good;
    request.mutable_access()->set_preset(static_cast<v1::Access::Preset>(preset));
    for (const int flag : flags) {
      request.mutable_access()->add_flags(static_cast<v1::AccessFlag>(flag));
    }
    return request;
  };
  const int none = v1::Access::PRESET_UNSPECIFIED;
  for (const int unknown : {0, -1, 8, 31, 32, 63, 64, 1 << 20, INT32_MIN, INT32_MAX}) {
    SCOPED_TRACE(unknown);
    Refused(client, with(v1::Access::REG_WRITE, {unknown}), v1::ACCESS_INVALID);
  }
  for (const int unknown : {-1, 4, 77}) {
    Refused(client, with(unknown, {}), v1::ACCESS_INVALID);
  }
  Refused(client, with(none, {v1::REMOTE_WRITE}), v1::ACCESS_INVALID);
  Refused(client, with(none, {v1::REMOTE_ATOMIC}), v1::ACCESS_INVALID);
  // Huge pages asked of a buffer that has none.
  Refused(client, with(v1::Access::REG_WRITE, {v1::HUGETLB}), v1::ACCESS_INVALID);
}

TEST_P(ValuesTest, AccessUnsupported) {
  StartThis();
  RawClient client(dir());
  auto request = Good(client);
  request.mutable_access()->add_flags(v1::ON_DEMAND);
  const auto answer = Refused(client, request, v1::ACCESS_UNSUPPORTED);
  EXPECT_NE(answer.status.error_message().find("ON_DEMAND"), std::string::npos) << answer.text();
}

TEST_P(ValuesTest, DeviceUnknown) {
  StartThis();
  RawClient client(dir());
  const auto good = Good(client);
  for (const std::string name : {"", "mlx5_9", "soft0 ", "../soft0"}) {
    auto request = good;
    request.add_devices(name);
    Refused(client, request, v1::DEVICE_UNKNOWN);
  }
}

TEST_P(ValuesTest, RequestInvalid) {
  StartThis();
  RawClient client(dir());
  const auto good = Good(client);
  auto twice = good;
  twice.add_devices(device());
  twice.add_devices(device());
  Refused(client, twice, v1::REQUEST_INVALID);
  // Nobody compares each of them with all others.
  auto many = good;
  for (int i = 0; i < 50000; ++i) many.add_devices(std::to_string(i));
  const auto began = Clock::now();
  ExpectLimit(Refused(client, many, v1::REQUEST_INVALID), "devices in one call", 64, 0);
  EXPECT_LT(Clock::now() - began, Promised(seconds(1)));
  auto both = good;
  both.add_devices(device());
  both.set_all_devices(true);
  Refused(client, both, v1::REQUEST_INVALID);
  auto long_id = good;
  long_id.set_request_id(std::string(65, 'i'));
  ExpectLimit(Refused(client, long_id, v1::REQUEST_INVALID), "request_id", 64, 0);
}

TEST_P(ValuesTest, PolicyDeniedToWhoeverIsNoAdmin) {
  StartThis();
  RawClient client(dir());
  ExpectRefusal(client.ListSessions(), v1::POLICY_DENIED);
  ExpectRefusal(client.ListAllLeases(), v1::POLICY_DENIED);
  EXPECT_FALSE(client.GetStatus().response.session().admin()) << "uid 0 alone makes no admin";
  EXPECT_TRUE(admin().GetStatus().response.session().admin());
}

}  // namespace
}  // namespace mrd::e2e
