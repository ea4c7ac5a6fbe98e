// The verbs fabric on a fake host; at the end of every test nothing is left alive on it.
#ifndef MRD_TESTS_FABRIC_VERBS_FIXTURE_H_
#define MRD_TESTS_FABRIC_VERBS_FIXTURE_H_

#include <memory>
#include <string>

#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/verbs_fabric.h"
#include "gtest/gtest.h"
#include "mrd/v1/status.h"
#include "tests/fake/fake_verbs.h"

namespace mrd::fabric {

inline constexpr AccessMask kReadWrite =
    Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_READ) | Bit(v1::REMOTE_WRITE);
inline constexpr uint64_t kAddress = 0x650000000000;

// Registrable on every device: at the address where it is mapped.
inline RegionSpec Page() {
  RegionSpec spec;
  spec.iova = kAddress;
  spec.length = 4096;
  spec.access = kReadWrite;
  spec.va = reinterpret_cast<void*>(kAddress);
  return spec;
}

class VerbsTest : public testing::Test {
 protected:
  void Start(const std::string& spec) {
    fake_ = std::make_unique<fake::FakeVerbs>(spec);
    auto fabric = MakeVerbsFabric(*fake_);
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    fabric_ = *std::move(fabric);
  }

  std::shared_ptr<Domain> MakeDomain(const std::string& device = "fake0") {
    auto domain = fabric_->CreateDomain(device);
    EXPECT_TRUE(domain.ok()) << domain.status();
    return domain.ok() ? *std::move(domain) : nullptr;
  }

  // The detail of a refusal; an empty one where there was none.
  static v1::ErrorDetail Detail(const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    const auto detail = DetailOf(status);
    EXPECT_TRUE(detail.has_value()) << status;
    if (detail) {
      EXPECT_NE(detail->advice(), "") << status;
    }
    return detail.value_or(v1::ErrorDetail());
  }

  void TearDown() override {
    fabric_.reset();
    if (fake_ != nullptr) {
      EXPECT_EQ(fake_->Leaks(), "");
    }
  }

  std::unique_ptr<fake::FakeVerbs> fake_;
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace mrd::fabric

#endif  // MRD_TESTS_FABRIC_VERBS_FIXTURE_H_
