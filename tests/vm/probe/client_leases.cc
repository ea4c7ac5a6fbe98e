// The part of ProbeClient that is about leases, named domains, and what the daemon says by itself.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/vm/probe/client.h"
#include "tests/vm/probe/words.h"

namespace probe {
namespace {

// An event may have to wait for a ttl.
constexpr std::chrono::seconds kEventPatience{150};

constexpr uint64_t kBuffers = 8;
constexpr uint64_t kMostBytes = 512 << 10;  // Of a buffer of RunCycles.
constexpr uint64_t kMostRanges = 16;
constexpr uint64_t kCallsOfBuffer = 20;

}  // namespace

Answer ProbeClient::Renew(const Words& names) {
  std::vector<uint64_t> ids;
  for (const std::string& name : names) {
    const auto found = regions_.find(name);
    if (found == regions_.end()) return Misspoken("no regions " + name);
    for (const mrd::Region& region : found->second) ids.push_back(region.lease_id());
  }
  auto shortest = client_->RenewLeases(ids);
  if (!shortest.ok()) return shortest.status();
  if (!*shortest) return "shortest_ttl_ms=none";
  return absl::StrCat("shortest_ttl_ms=",
                      std::chrono::duration_cast<std::chrono::milliseconds>(**shortest).count());
}

Answer ProbeClient::AwaitEvents(const std::string& kind, uint64_t leases) {
  return events_.Take(kind, leases, kEventPatience);
}

Answer ProbeClient::CountEvents(const std::string& kind) { return events_.Count(kind); }

Answer ProbeClient::Totals() {
  auto status = client_->GetStatus();
  if (!status.ok()) return status.status();
  if (!status->has_totals()) return Misspoken("totals are for admins");
  const mrd::v1::Totals& totals = status->totals();
  return absl::StrCat("sessions=", totals.sessions(), " regions=", totals.regions(),
                      " pinned_bytes=", totals.pinned_bytes(), " endpoints=", totals.endpoints(),
                      " buffers=", totals.buffers());
}

// Named domains. -----------------------------------------------------------------------------

Answer ProbeClient::OpenDomain(const std::string& name, const mrd::DomainOptions& options) {
  auto domain = client_->OpenDomain(name, options);
  if (!domain.ok()) return domain.status();
  return absl::StrCat("owner=", domain->owner(), " group=", domain->group(), " mode=0",
                      absl::StrFormat("%o", domain->mode()));
}

Answer ProbeClient::CloseDomain(const std::string& name) {
  if (absl::Status status = client_->CloseDomain(name); !status.ok()) return status;
  return "";
}

Answer ProbeClient::Domains() {
  auto domains = client_->ListDomains();
  if (!domains.ok()) return domains.status();
  std::vector<std::string> names;
  for (const mrd::v1::Domain& domain : *domains) names.push_back(domain.name());
  return absl::StrCat("domains=", names.size(), " names=", absl::StrJoin(names, ","));
}

// Churn. -------------------------------------------------------------------------------------

Answer ProbeClient::RunCycles(uint64_t count, uint64_t seed, const std::string& device) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t bound) { return random() % bound; };
  mrd::RegisterOptions options;
  options.devices = {device};
  options.preset = mrd::v1::Access::REG_WRITE;
  std::vector<mrd::Buffer> buffers;
  uint64_t cycles = 0;
  for (uint64_t calls = 0; cycles < count; ++calls) {
    if (calls % kCallsOfBuffer == 0) {
      if (buffers.size() == kBuffers) buffers.erase(buffers.begin());
      auto buffer = client_->CreateBuffer(1 + below(kMostBytes), {.name = "cycles"});
      if (!buffer.ok()) return buffer.status();
      buffers.push_back(std::move(*buffer));
    }
    std::vector<mrd::Range> ranges;
    for (uint64_t left = std::min(count - cycles, 1 + below(kMostRanges)); left > 0; --left) {
      const mrd::Buffer& buffer = buffers[below(buffers.size())];
      const uint64_t offset = below(buffer.size());
      ranges.emplace_back(buffer, offset, 1 + below(buffer.size() - offset));
    }
    auto regions = client_->Register(options, ranges);
    if (!regions.ok()) return regions.status();
    if (absl::Status status = client_->Deregister(*regions); !status.ok()) return status;
    cycles += ranges.size();
  }
  return absl::StrCat("cycles=", cycles);
}

}  // namespace probe
