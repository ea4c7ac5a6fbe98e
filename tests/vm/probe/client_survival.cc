// The part of ProbeClient that is about restarts of the daemon.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/vm/probe/client.h"
#include "tests/vm/probe/words.h"

namespace probe {

Answer ProbeClient::Keys(const std::string& name) {
  const auto found = regions_.find(name);
  if (found == regions_.end() || found->second.empty()) return Misspoken("no regions " + name);
  const mrd::Region& region = found->second.front();
  const std::vector<mrd::RegionKey> keys = region.keys();
  std::string line = absl::StrFormat("addr=0x%x length=%d lease=%d keys=%d", region.addr(),
                                     region.length(), region.lease_id(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::StrAppendFormat(&line, " device%d=%s generation%d=%d key%d=0x%x", i, keys[i].device, i,
                          keys[i].generation, i, keys[i].rkey);
  }
  return line;
}

Answer ProbeClient::AddKeys() {
  auto added = client_->AddKeys();
  if (!added.ok()) return added.status();
  return "";
}

Answer ProbeClient::RegisterFor(uint64_t seconds, const std::string& device) {
  using Clock = std::chrono::steady_clock;
  auto buffer = client_->CreateBuffer(64 << 10);
  if (!buffer.ok()) return buffer.status();
  mrd::RegisterOptions options;
  options.preset = mrd::v1::Access::REG_WRITE;
  options.devices = {device};
  const mrd::Range range(*buffer, 0, 4096);
  uint64_t calls = 0;
  Clock::duration longest{};
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  while (Clock::now() < end) {
    const auto began = Clock::now();
    auto regions = client_->Register(options, {&range, 1});
    if (!regions.ok()) return regions.status();
    if (absl::Status ended = regions->front().Deregister(); !ended.ok()) return ended;
    longest = std::max(longest, Clock::now() - began);
    ++calls;
  }
  return absl::StrCat("calls=", calls, " longest_ms=",
                      std::chrono::duration_cast<std::chrono::milliseconds>(longest).count());
}

}  // namespace probe
