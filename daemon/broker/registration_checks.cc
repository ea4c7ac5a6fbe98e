// What a Register call is refused for before anything is pinned.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/broker/registration.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

using fabric::Bit;

constexpr size_t kRequestIdBytes = 64;
constexpr size_t kCheckEvery = 64;  // Ranges.

constexpr fabric::AccessMask kKnownAccess =
    Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_WRITE) | Bit(v1::REMOTE_READ) | Bit(v1::REMOTE_ATOMIC) |
    Bit(v1::RELAXED_ORDERING) | Bit(v1::ON_DEMAND) | Bit(v1::HUGETLB);

}  // namespace

absl::Status Registration::CheckShape() const {
  const size_t most = broker_.limits().ranges_per_call;
  if (spec_.ranges.empty() || spec_.ranges.size() > most) {
    return MakeError(v1::INVALID_LENGTH, absl::StrCat(spec_.ranges.size(), " ranges in one call"),
                     {.limit_name = "ranges in one call",
                      .limit = most,
                      .advice = absl::StrCat("Register 1 to ", most, " ranges a call")});
  }
  if (spec_.request_id.size() > kRequestIdBytes) {
    return MakeError(v1::REQUEST_INVALID, "request_id is too long",
                     {.limit_name = "bytes of a request_id",
                      .limit = kRequestIdBytes,
                      .advice = "Use at most 64 bytes"});
  }
  if ((spec_.access & ~kKnownAccess) != 0) {
    return MakeError(v1::ACCESS_INVALID,
                     absl::StrFormat("unknown access bits 0x%x", spec_.access & ~kKnownAccess),
                     {.advice = "Use the flags of AccessFlag"});
  }
  if (fabric::LacksLocalWrite(spec_.access)) {
    return MakeError(v1::ACCESS_INVALID, "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE",
                     {.advice = "Add LOCAL_WRITE; ibv_reg_mr(3) wants it"});
  }
  if (spec_.all_devices && !spec_.devices.empty()) {
    return MakeError(v1::REQUEST_INVALID, "all_devices and devices are both given",
                     {.advice = "Give one of them"});
  }
  if (const size_t most_devices = broker_.limits().devices_per_call;
      spec_.devices.size() > most_devices) {
    return MakeError(
        v1::REQUEST_INVALID, absl::StrCat(spec_.devices.size(), " devices in one call"),
        {.limit_name = "devices in one call",
         .limit = most_devices,
         .advice = absl::StrCat("Name at most ", most_devices, ", or set all_devices")});
  }
  for (size_t i = 0; i < spec_.devices.size(); ++i) {
    const auto begin = spec_.devices.begin();
    if (std::find(begin, begin + i, spec_.devices[i]) != begin + i) {
      return MakeError(v1::REQUEST_INVALID,
                       absl::StrCat("device ", spec_.devices[i], " is named twice"),
                       {.advice = "Name each device once"});
    }
  }
  return absl::OkStatus();
}

absl::Status Registration::CheckHugetlb(const RangeSpec& range,
                                        const memory::Buffer& buffer) const {
  if (buffer.kind() != memory::Kind::kHugetlb) {
    return MakeError(v1::ACCESS_INVALID, "access flag HUGETLB on a buffer without huge pages",
                     {.advice = "Leave it out, or pass a memfd made with MFD_HUGETLB"});
  }
  const uint64_t page = buffer.page_size();
  if (range.addr % page != 0 || range.length % page != 0) {
    return MakeError(
        v1::MISALIGNED,
        absl::StrFormat("addr 0x%x and length %d with access flag HUGETLB", range.addr,
                        range.length),
        {.advice = absl::StrCat("Both must be multiples of the huge page size ", page)});
  }
  return absl::OkStatus();
}

absl::Status OfRange(const std::vector<RangeSpec>& ranges, size_t index,
                     const absl::Status& refusal) {
  return WithPrefix(absl::StrCat("range ", index, " (of buffer ", ranges[index].buffer_id, "): "),
                    refusal);
}

absl::Status Registration::CheckAndBook() {
  if (auto allowed = terms_->CheckRegistration(devices_, spec_.access); !allowed.ok())
    return allowed;
  Amounts wanted;
  for (size_t i = 0; i < spec_.ranges.size(); ++i) {
    const RangeSpec& range = spec_.ranges[i];
    auto checked = buffers_[i]->Check(range.offset, range.length, range.addr, terms_->unsealed);
    if (checked.ok() && (spec_.access & Bit(v1::HUGETLB)) != 0) {
      checked = CheckHugetlb(range, *buffers_[i]);
    }
    if (!checked.ok()) return OfRange(spec_.ranges, i, checked);
    const uint64_t each = PinnedBytes(range.addr, range.length);
    const uint64_t bytes = each > UINT64_MAX / domain_count() ? UINT64_MAX : each * domain_count();
    wanted.bytes = bytes > UINT64_MAX - wanted.bytes ? UINT64_MAX : wanted.bytes + bytes;
    wanted.regions += domain_count();
  }
  if (auto booked = broker_.books().Book(*session_.holder, wanted); !booked.ok()) return booked;
  booked_ = wanted;
  MutexLock lock(session_.mutex);
  session_.held += wanted;
  return absl::OkStatus();
}

absl::Status Registration::CheckPresent() {
  // Most ranges lie in the buffer of the one before, and most calls have one buffer.
  absl::flat_hash_map<const memory::Buffer*, memory::Buffer::Seen> before;
  const memory::Buffer* last = nullptr;
  memory::Buffer::Seen seen;
  for (size_t i = 0; i < spec_.ranges.size(); ++i) {
    if (i % kCheckEvery == kCheckEvery - 1) {
      if (auto go_on = GoOn(); !go_on.ok()) return go_on;
    }
    const RangeSpec& range = spec_.ranges[i];
    memory::Buffer& buffer = *buffers_[i];
    if (&buffer != last) {
      if (last) before[last] = seen;
      const auto known = before.find(&buffer);
      seen = known == before.end() ? memory::Buffer::Seen{} : known->second;
      last = &buffer;
    }
    const auto present =
        buffer.CheckPresent(range.offset, range.length, &seen, [this] { return !GoOn().ok(); });
    if (absl::IsCancelled(present)) return GoOn();
    if (!present.ok()) return OfRange(spec_.ranges, i, present);
  }
  return absl::OkStatus();
}

}  // namespace mrd::broker
