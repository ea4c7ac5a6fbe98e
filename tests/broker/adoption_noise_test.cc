#include <random>

#include "tests/broker/adoption_fixture.h"

namespace mrd::broker {
namespace {

// Whatever the records say: no region without a lease, no lease without its region.
class NoisyRecordsTest : public AdoptionTest, public testing::WithParamInterface<int> {};

TEST_P(NoisyRecordsTest, BooksEqualTheKernel) {
  std::mt19937 random(GetParam());
  const auto noise = [&random](uint64_t value) {
    return random() % 12 == 0 ? 1 + random() % 9 : value;
  };
  Put(Kind::kDevice, device_);
  for (uint64_t id = 3; id < 6; ++id) {
    session_.set_id(noise(id));
    session_.set_token("token " + std::to_string(id) + "         ");
    Put(Kind::kSession, session_);
    pb::Call call;
    call.set_id(noise(id));
    call.set_session_id(noise(id));
    call.set_request_id("request");
    call.add_lease_ids(noise(70));
    Put(Kind::kCall, call);
    const auto pd = static_cast<uint32_t>(id);
    kernel_.pds.insert(pd);
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t handle = pd * 10 + i;
      pb::Lease lease = LeaseRecord(noise(handle), handle);
      kernel_.pd_of[handle] = pd;
      lease.set_session_id(noise(id));
      lease.mutable_keys(0)->set_pd(pd);
      lease.mutable_keys(0)->set_handle(noise(handle));
      if (random() % 10 == 0) lease.mutable_keys(0)->set_rkey(random() % 100);
      lease.set_call(noise(0));
      lease.set_revision(noise(0));
      lease.set_length(random() % 20 == 0 ? random() : 4096);
      Put(Kind::kLease, lease);
    }
    pb::Endpoint endpoint = EndpointRecord(noise(id + 100), pd * 100, "e" + std::to_string(id));
    kernel_.pd_of[pd * 100] = pd;
    endpoint.set_pd(pd);
    endpoint.set_session_id(noise(id));
    endpoint.set_qp(noise(pd * 100));
    Put(Kind::kEndpoint, endpoint);
  }
  Adopt().IgnoreError();
  EXPECT_EQ(Kernel().mrs.size(), broker_->books().Total().regions);
  EXPECT_EQ(Kernel().mrs.size(), LeaseIds().size());
  EXPECT_EQ(Kernel().qps.size(), broker_->books().Total().endpoints);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NoisyRecordsTest, testing::Range(0, 300));

}  // namespace
}  // namespace mrd::broker
