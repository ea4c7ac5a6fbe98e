#include <gtest/gtest.h>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

class RegistrationTest : public BrokerTest {};

TEST_F(RegistrationTest, GivesKeysForEachRangeOnEachDevice) {
  const auto session = Attach();
  Pass(session, 1);
  auto spec = Spec({Range(0, 4096), Range(4096, 100)});
  spec.devices = {};
  spec.all_devices = true;
  const auto result = Register(session, spec);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ((*result)->size(), 2u);
  for (const LeaseView& view : **result) {
    ASSERT_EQ(view.keys.size(), 2u);
    EXPECT_EQ(view.keys[0].device->name, "fake0");
    EXPECT_EQ(view.keys[1].device->name, "fake1");
  }
  EXPECT_EQ(broker_->books().Used(kUid).regions, 4u);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 4 * 4096u);
}

TEST_F(RegistrationTest, CountsWholePagesAsTheKernelDoes) {
  const auto session = Attach();
  Pass(session, 1);
  ASSERT_TRUE(Register(session, Spec({Range(4095, 2)})).ok());
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 2 * 4096u);
}

TEST_F(RegistrationTest, HoldsAsAWholeOrNotAtAll) {
  const auto session = Attach();
  Pass(session, 1);
  verbs_.Fail("fake1", "reg", "ENOMEM@3");
  auto spec = Spec({Range(0, 4096), Range(4096, 4096), Range(8192, 4096)});
  spec.devices = {"fake0", "fake1"};
  const auto result = Register(session, spec);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(DetailOf(result.status())->errno_name(), "ENOMEM");
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 0u);
  EXPECT_EQ(session->View().held.regions, 0u);
  EXPECT_EQ(broker_->Leases(session, 0, 10).leases.size(), 0u);
}

TEST_F(RegistrationTest, ARepeatGetsTheFirstAnswer) {
  const auto session = Attach();
  Pass(session, 1);
  auto spec = Spec({Range(0, 4096)});
  spec.request_id = "r";
  spec.fingerprint = 5;
  const auto first = Register(session, spec);
  const auto repeat = Register(session, spec);
  ASSERT_TRUE(first.ok() && repeat.ok());
  ASSERT_EQ((*repeat)->size(), 1u);
  EXPECT_EQ((*first)->front().id, (*repeat)->front().id);
  EXPECT_EQ((*first)->front().keys[0].rkey, (*repeat)->front().keys[0].rkey);
  EXPECT_EQ(verbs_.live().mrs, 1);
  spec.fingerprint = 6;
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::REQUEST_ID_REUSED);
}

TEST_F(RegistrationTest, AnotherSessionsRequestIdIsItsOwn) {
  const auto a = Attach();
  const auto b = Attach();
  Pass(a, 1);
  Pass(b, 1);
  auto spec = Spec({Range(0, 4096)});
  spec.request_id = "r";
  const auto first = Register(a, spec);
  const auto second = Register(b, spec);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE((**first)[0].id, (**second)[0].id);
}

TEST_F(RegistrationTest, ARepeatThatComesWhileTheFirstRunsWaitsForIt) {
  const auto session = Attach();
  Pass(session, 1, 8 << 20);
  auto spec = Spec({Range(0, 8 << 20)});
  spec.request_id = "r";
  auto first = StartRegister(session, spec);
  auto repeat = StartRegister(session, spec);
  const auto first_result = first.get();
  const auto repeat_result = repeat.get();
  ASSERT_TRUE(first_result.ok() && repeat_result.ok());
  EXPECT_EQ((**first_result)[0].id, (**repeat_result)[0].id);
  EXPECT_EQ((**first_result)[0].keys[0].rkey, (**repeat_result)[0].keys[0].rkey);
  EXPECT_EQ(verbs_.live().mrs, 1);
}

TEST_F(RegistrationTest, ARefusedRequestRunsAnewWhenRepeated) {
  const auto session = Attach();
  Pass(session, 1);
  verbs_.Fail("fake0", "reg", "ENOMEM@1");
  auto spec = Spec({Range(0, 4096)});
  spec.request_id = "r";
  EXPECT_FALSE(Register(session, spec).ok());
  EXPECT_TRUE(Register(session, spec).ok());
}

TEST_F(RegistrationTest, DrainsTheAttachSocketForABufferNotYetSeen) {
  const auto link = std::make_shared<FakeLink>();
  const auto session = Attach(kUid, link);
  bool passed = false;
  link->on_drain = [&] {
    if (!std::exchange(passed, true)) Pass(session, 1);
  };
  EXPECT_TRUE(Register(session, Spec({Range(0, 4096)})).ok());
  EXPECT_EQ(ReasonOf(Register(session, Spec({Range(0, 4096, 2)})).status()), v1::BUFFER_UNKNOWN);
}

TEST_F(RegistrationTest, ReleaseAfterLeavesRegionsAndFreesTheBuffer) {
  const auto session = Attach();
  Pass(session, 1);
  auto spec = Spec({Range(0, 4096)});
  spec.release_after = true;
  ASSERT_TRUE(Register(session, spec).ok());
  EXPECT_EQ(session->View().buffers, 0u);
  EXPECT_EQ(memory::CountMappings(), 0u);
  EXPECT_EQ(verbs_.live().mrs, 1);
}

TEST_F(RegistrationTest, ASessionIsThereUntilItsCallsAreAnswered) {
  const auto stays = [this](const SessionRef& session, auto start) {
    auto answered = std::make_shared<std::promise<bool>>();
    start([this, session, answered](auto) { answered->set_value(StaysWhenEnded(session)); });
    return answered->get_future().get();
  };
  const auto registers = [&](RegisterSpec spec, bool repeats) {
    const auto session = Attach();
    Pass(session, 1);
    if (repeats) Register(session, spec).status().IgnoreError();
    return stays(session, [&](auto done) { broker_->Register(session, spec, std::move(done)); });
  };
  auto spec = Spec({Range(0, 4096)});
  EXPECT_TRUE(registers(spec, false));
  spec.release_after = true;
  EXPECT_TRUE(registers(spec, false));
  spec.ranges[0].length = 1 << 30;
  EXPECT_TRUE(registers(spec, false)) << "refused";
  spec = Spec({Range(0, 4096)});
  spec.request_id = "r";
  EXPECT_TRUE(registers(spec, true));
  spec.ranges.resize(600, Range(0, 4096));  // The answer is a long one.
  EXPECT_TRUE(registers(spec, true));

  for (const size_t count : {1, 600}) {
    const auto session = Attach();
    Pass(session, 1);
    const auto leases = Register(session, Spec(std::vector<RangeSpec>(count, Range(0, 4096))));
    std::vector<uint64_t> ids;
    for (const LeaseView& view : **leases) ids.push_back(view.id);
    EXPECT_TRUE(stays(session, [&](auto done) {
      broker_->Deregister(session, ids, std::move(done));
    })) << count;
  }
  const auto session = Attach();
  Pass(session, 1);
  EXPECT_TRUE(
      stays(session, [&](auto done) { broker_->ReleaseBuffers(session, {1}, std::move(done)); }));
}

TEST_F(RegistrationTest, RefusesCallsOfTheWrongShape) {
  const auto session = Attach();
  Pass(session, 1);
  EXPECT_EQ(ReasonOf(Register(session, Spec({})).status()), v1::INVALID_LENGTH);
  EXPECT_EQ(ReasonOf(Register(session, Spec(std::vector<RangeSpec>(10001, Range(0, 1)))).status()),
            v1::INVALID_LENGTH);
  auto spec = Spec({Range(0, 4096)});
  spec.access = 1u << 20;
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::ACCESS_INVALID);
  spec.access = fabric::Bit(v1::REMOTE_WRITE);
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::ACCESS_INVALID);
  spec.access = fabric::Bit(v1::LOCAL_WRITE) | fabric::Bit(v1::HUGETLB);
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::ACCESS_INVALID);
  spec = Spec({Range(0, 4096)}, "no_such");
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::DEVICE_UNKNOWN);
  spec.devices = {"fake0", "fake0"};
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::REQUEST_INVALID);
  spec.all_devices = true;
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::REQUEST_INVALID);
  spec = Spec({Range(0, 4096)});
  spec.request_id = std::string(65, 'x');
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::REQUEST_INVALID);
}

class SlowRegistrationTest : public BrokerTest {
 protected:
  SlowRegistrationTest() : BrokerTest("devices=fake0;fake0.reg_delay_ms=300") {}
};

TEST_F(SlowRegistrationTest, IsRolledBackWhenItsSessionEndsMeanwhile) {
  const auto session = Attach();
  Pass(session, 1);
  auto result = StartRegister(session, Spec({Range(0, 4096)}));
  EndAndWait(session);
  EXPECT_EQ(ReasonOf(result.get().status()), v1::SESSION_UNKNOWN);
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(verbs_.live().pds, 0);
  EXPECT_EQ(broker_->books().Total(), Amounts{});
}

// Two buffers of one file, of which a page is absent: whether others are there must be looked for.
class AbsentPageTest : public BrokerTest {
 protected:
  static constexpr uint64_t kSize = 64 << 20;
  static Limits Lots() {
    Limits limits;
    limits.pinned_bytes = uint64_t{1} << 50;
    return limits;
  }
  explicit AbsentPageTest(Limits limits = Lots()) : BrokerTest("devices=fake0", limits) {}

  void PassBoth(const SessionRef& session) {
    const UniqueFd fd = memory::MakeMemfd(kSize + 4096);
    ASSERT_EQ(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kSize, 4096), 0);
    for (const uint64_t id : {1, 2}) {
      EXPECT_TRUE(broker_->AddBuffer(*session, id, UniqueFd(dup(fd.get()))));
    }
  }
  // 10,000 in turn.
  static RegisterSpec InTurn(const RangeSpec& one, const RangeSpec& other) {
    RegisterSpec spec = Spec({});
    for (int i = 0; i < 5000; ++i) spec.ranges.insert(spec.ranges.end(), {one, other});
    return spec;
  }
};

TEST_F(AbsentPageTest, EachBuffersPagesAreLookedForOnce) {
  const auto session = Attach();
  PassBoth(session);
  const auto spec = InTurn(Range(0, kSize, 1), Range(0, kSize, 2));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(Register(session, spec).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(AbsentPageTest, ARefusalLeavesTheBooksAsTheyWere) {
  const auto session = Attach();
  PassBoth(session);
  const auto refusal = Register(session, Spec({Range(0, 4096, 2), Range(kSize, 4096)})).status();
  EXPECT_EQ(ReasonOf(refusal), v1::NOT_POPULATED);
  EXPECT_EQ(refusal.message().substr(0, 7), "range 1");
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 0u);
  EXPECT_EQ(session->View().held, Amounts{});
}

TEST_F(AbsentPageTest, TheEndOfASessionEndsTheLookingForItsPages) {
  const auto session = Attach();
  PassBoth(session);
  // They lie apart, so that each is looked for anew.
  auto result =
      StartRegister(session, InTurn(Range(0, kSize / 2 - 4096), Range(kSize / 2, kSize / 2)));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto began = std::chrono::steady_clock::now();
  EndAndWait(session);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  EXPECT_EQ(ReasonOf(result.get().status()), v1::SESSION_UNKNOWN);
}

class AbsentPageQuotaTest : public AbsentPageTest {
 protected:
  static Limits Little() {
    Limits limits;
    limits.pinned_bytes = uint64_t{1} << 30;
    return limits;
  }
  AbsentPageQuotaTest() : AbsentPageTest(Little()) {}
};

TEST_F(AbsentPageQuotaTest, NothingIsLookedForThatTheUserMayNotPin) {
  const auto session = Attach();
  PassBoth(session);
  const auto spec = InTurn(Range(0, kSize / 2 - 4096), Range(kSize / 2, kSize / 2));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(ReasonOf(Register(session, spec).status()), v1::QUOTA_BYTES);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

class SmallQuotaTest : public BrokerTest {
 protected:
  static Limits Small() {
    Limits limits;
    limits.regions = 2;
    limits.buffers = 3;
    return limits;
  }
  SmallQuotaTest() : BrokerTest("devices=fake0", Small()) {}
};

TEST_F(SmallQuotaTest, IsOverAllSessionsOfAUid) {
  const auto a = Attach();
  const auto b = Attach();
  const auto other = Attach(kUid + 1);
  for (const auto& session : {a, b, other}) Pass(session, 1);
  ASSERT_TRUE(Register(a, Spec({Range(0, 1), Range(4096, 1)})).ok());
  const auto refusal = Register(b, Spec({Range(0, 1)}));
  EXPECT_EQ(ReasonOf(refusal.status()), v1::QUOTA_REGIONS);
  EXPECT_EQ(DetailOf(refusal.status())->used(), 2u);
  EXPECT_TRUE(Register(other, Spec({Range(0, 1)})).ok());
}

TEST_F(SmallQuotaTest, BoundsBuffersAndTellsTheCallThatNamesOneTooMany) {
  const auto session = Attach();
  for (uint64_t id = 1; id <= 4; ++id) Pass(session, id);
  EXPECT_TRUE(Register(session, Spec({Range(0, 1, 3)})).ok());
  const auto refusal = Register(session, Spec({Range(0, 1, 4)}));
  EXPECT_EQ(ReasonOf(refusal.status()), v1::QUOTA_BUFFERS);
  EXPECT_EQ(DetailOf(refusal.status())->limit(), 3u);
}

class DevicesTest : public BrokerTest {
 protected:
  explicit DevicesTest(const std::string& verbs =
                           "devices=fake0,fake1;fake0.active=0;"
                           "fake1.active=0")
      : BrokerTest(verbs) {}

  // Until what is known of the devices is not fresh any more.
  static void GrowStale() { std::this_thread::sleep_for(std::chrono::milliseconds(1050)); }

  std::string DeviceTaken(const SessionRef& session) {
    RegisterSpec spec = Spec({Range(0, 4096)});
    spec.devices.clear();
    const auto leases = Register(session, std::move(spec));
    EXPECT_TRUE(leases.ok()) << leases.status();
    return leases.ok() ? (*leases)->front().keys.front().device->name : "";
  }
};

TEST_F(DevicesTest, TheDefaultDeviceIsOneWhoseLinkCameUpAfterTheStart) {
  const auto session = Attach();
  Pass(session, 1);
  EXPECT_EQ(DeviceTaken(session), "fake0") << "none is active: the first of all";
  verbs_.SetActive("fake1", true);
  GrowStale();
  EXPECT_EQ(DeviceTaken(session), "fake1") << "at once, though none was known to be active";
}

TEST_F(DevicesTest, TheDefaultDeviceIsNotOneThatWentDown) {
  verbs_.SetActive("fake0", true);
  verbs_.SetActive("fake1", true);
  GrowStale();
  const auto session = Attach();
  Pass(session, 1);
  EXPECT_EQ(DeviceTaken(session), "fake0");
  verbs_.SetActive("fake0", false);
  GrowStale();
  // A call or so later: the calls themselves see to it that the devices are looked at.
  std::string taken;
  for (int i = 0; i < 2000 && taken != "fake1"; ++i) {
    taken = DeviceTaken(session);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(taken, "fake1");
}

class SlowDevicesTest : public DevicesTest {
 protected:
  SlowDevicesTest() : DevicesTest("devices=fake0;fake0.port_delay_ms=400") {}
};

TEST_F(SlowDevicesTest, ListingThemBlocksNoCallerAndCallsThatComeTogetherShareOneLook) {
  GrowStale();
  const uint64_t queries = verbs_.PortQueries("fake0");
  std::vector<std::future<size_t>> listed;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    auto promise = std::make_shared<std::promise<size_t>>();
    listed.push_back(promise->get_future());
    broker_->devices().List(
        [promise](const std::vector<DeviceRef>& devices) { promise->set_value(devices.size()); });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  for (auto& each : listed) EXPECT_EQ(each.get(), 1u);
  EXPECT_EQ(verbs_.PortQueries("fake0"), queries + 1);
}

// The leases of its answer are no session's then.
TEST_F(RegistrationTest, ARepeatWhileTheSessionEndsIsRefused) {
  for (int round = 0; round < 200; ++round) {
    const auto session = Attach();
    Pass(session, 1);
    RegisterSpec spec = Spec({Range(0, 4096)});
    spec.request_id = "again";
    ASSERT_TRUE(Register(session, spec).ok());
    std::atomic<bool> over = false;
    std::vector<std::thread> repeating;
    for (int i = 0; i < 4; ++i) {
      repeating.emplace_back([&] {
        while (!over) {
          const auto repeated = Register(session, spec);
          EXPECT_TRUE(repeated.ok() || ReasonOf(repeated.status()) == v1::SESSION_UNKNOWN);
        }
      });
    }
    EndAndWait(session);
    over = true;
    for (std::thread& thread : repeating) thread.join();
  }
}

}  // namespace
}  // namespace mrd::broker
