// The part of ProbeClient that passes what is no memory, or not yet.
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"
#include "tests/vm/probe/client.h"

namespace probe {
namespace {

constexpr char kName[] = "bad";
constexpr uint64_t kSize = 8192;

// Memfds that are not as they should be, and what mrd should say. The others are BadKinds().
struct BadMemfd {
  const char* kind;
  MemfdOptions options;
  mrd::v1::Reason reason;
};
const BadMemfd kBadMemfds[] = {
    {"unsealed", {.size = kSize, .sealed = false}, mrd::v1::NOT_SEALED},
    {"sparse", {.size = kSize, .populated = false}, mrd::v1::NOT_POPULATED},
    {"frozen", {.size = kSize, .frozen = true}, mrd::v1::BUFFER_READ_ONLY},
    {"read_only", {.size = kSize, .read_only = true}, mrd::v1::BUFFER_READ_ONLY},
    {"short", {.size = kSize / 2}, mrd::v1::OUT_OF_RANGE},
};

}  // namespace

absl::StatusOr<mrd::v1::Reason> ProbeClient::AddBadBuffer(const std::string& kind) {
  for (const BadMemfd& bad : kBadMemfds) {
    if (kind != bad.kind) continue;
    auto memfd = MakeMemfd(bad.options);
    if (!memfd.ok()) return memfd.status();
    // What the library is told is always kSize: "short" has fewer behind it.
    auto adopted = AdoptAnything(kName, memfd->fd.get(), kSize);
    if (!adopted.ok()) return adopted.status();
    return bad.reason;
  }
  auto fd = MakeBadFd(kind);
  if (!fd.ok()) return fd.status();
  auto adopted = AdoptAnything(kName, fd->get(), kSize);
  if (!adopted.ok()) return adopted.status();
  return mrd::v1::NOT_SHARED_MEMORY;
}

Answer ProbeClient::BadFds(uint64_t count, uint64_t seed, const std::string& device) {
  std::vector<std::string> kinds = BadKinds();
  for (const BadMemfd& bad : kBadMemfds) kinds.push_back(bad.kind);
  std::mt19937_64 random(seed);
  std::map<std::string, uint64_t> by_reason;
  for (uint64_t i = 0; i < count; ++i) {
    // Each kind once, then as it comes.
    const std::string& kind = i < kinds.size() ? kinds[i] : kinds[random() % kinds.size()];
    auto expected = AddBadBuffer(kind);
    if (!expected.ok()) return expected.status();
    RegisterRequest request = {.name = kName, .length = kSize, .options = {}};
    request.options.devices = {device};
    request.options.preset = mrd::v1::Access::REG_WRITE;
    auto registered = Register(kName, request);
    const auto reason = mrd::ReasonOf(registered.status());
    if (registered.ok() || reason != *expected) {
      return absl::InternalError(absl::StrCat(
          "descriptor ", i, ", ", kind, ": ",
          registered.ok() ? "registered" : std::string(registered.status().message())));
    }
    ++by_reason[mrd::v1::Reason_Name(reason)];
    memory_.erase(kName);
  }
  std::string text = absl::StrCat("tried=", count);
  for (const auto& [reason, times] : by_reason) absl::StrAppend(&text, " ", reason, "=", times);
  return text;
}

}  // namespace probe
