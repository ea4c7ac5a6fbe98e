#include "daemon/fabric/checks.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mrd/v1/status.h"

namespace mrd::fabric {
namespace {

constexpr AccessMask kKnown = Bit(v1::LOCAL_WRITE) | kRemoteAccess | Bit(v1::RELAXED_ORDERING) |
                              Bit(v1::ON_DEMAND) | Bit(v1::HUGETLB);

absl::Status CheckLength(const DeviceInfo& device, const RegionSpec& spec) {
  if (spec.length == 0) {
    return MakeError(v1::INVALID_LENGTH, "a region of 0 bytes",
                     {.advice = "Register at least one byte"});
  }
  if (spec.length > device.max_region_bytes) {
    return MakeError(v1::DEVICE_LIMIT,
                     absl::StrCat("a region of ", spec.length, " bytes on device ", device.name,
                                  ", which takes at most ", device.max_region_bytes),
                     {.limit_name = absl::StrCat("max_mr_size of device ", device.name),
                      .limit = device.max_region_bytes,
                      .advice = "Register it in several ranges, none longer than the limit"});
  }
  return absl::OkStatus();
}

absl::Status CheckAccess(const DeviceInfo& device, AccessMask access) {
  if ((access & ~kKnown) != 0) {
    return MakeError(v1::ACCESS_INVALID,
                     absl::StrFormat("unknown access bits %#x", access & ~kKnown),
                     {.advice = "Use the flags of mrd.v1.AccessFlag only"});
  }
  if (LacksLocalWrite(access)) {
    return MakeError(v1::ACCESS_INVALID, absl::StrCat(AccessNames(access), " without LOCAL_WRITE"),
                     {.advice = "Add LOCAL_WRITE: ibv_reg_mr(3) wants it with REMOTE_WRITE and "
                                "REMOTE_ATOMIC"});
  }
  if (const AccessMask lacking = access & ~device.access; lacking != 0) {
    return MakeError(v1::ACCESS_UNSUPPORTED,
                     absl::StrCat("device ", device.name, " cannot do ", AccessNames(lacking)),
                     {.advice = absl::StrCat("Leave it out, or name another device; this one does ",
                                             AccessNames(device.access))});
  }
  return absl::OkStatus();
}

absl::Status CheckAddress(const DeviceInfo& device, const RegionSpec& spec) {
  // The last byte may be that of the address space, so length - 1.
  if (spec.iova + (spec.length - 1) < spec.iova) {
    return MakeError(v1::ADDRESS_UNUSABLE,
                     absl::StrFormat("%d bytes at address %#x go beyond the address space",
                                     spec.length, spec.iova),
                     {.advice = "Register at the address where the buffer is mapped"});
  }
  if (spec.dma_buf_fd >= 0) return absl::OkStatus();
  static const uint64_t page = sysconf(_SC_PAGESIZE);
  const auto va = reinterpret_cast<uintptr_t>(spec.va);
  if (((va ^ spec.iova) & (page - 1)) != 0) {
    return MakeError(
        v1::ADDRESS_UNUSABLE,
        absl::StrFormat("address %#x and the offset in the buffer differ within a page", spec.iova),
        {.advice = absl::StrCat("Address and offset must agree modulo ", page,
                                ", as they do in any mapping of the buffer.")});
  }
  if (!device.any_address && va != spec.iova) {
    return MakeError(v1::ADDRESS_UNUSABLE,
                     absl::StrFormat("device %s registers memory only at the address where the "
                                     "daemon has it mapped, which is not %#x",
                                     device.name, spec.iova),
                     {.advice = "Map the buffer where the client library maps its own"});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRegion(const DeviceInfo& device, const RegionSpec& spec) {
  if (absl::Status status = CheckLength(device, spec); !status.ok()) return status;
  if (absl::Status status = CheckAccess(device, spec.access); !status.ok()) return status;
  return CheckAddress(device, spec);
}

absl::Status CheckPrivateData(const std::string& data, size_t max) {
  if (data.size() <= max) return absl::OkStatus();
  return MakeError(v1::REQUEST_INVALID,
                   absl::StrCat("private data of ", data.size(), " bytes; ", max, " is the most"),
                   {.limit_name = "bytes of private_data",
                    .limit = max,
                    .advice = "Send the rest over the connection"});
}

absl::Status CheckPort(uint32_t port) {
  if (port <= 65535) return absl::OkStatus();
  return MakeError(v1::ADDRESS_INVALID, absl::StrCat("port ", port),
                   {.advice = "A port is a number from 0 to 65535"});
}

std::string AccessNames(AccessMask access) {
  std::string names;
  for (int flag = v1::AccessFlag_MIN; flag <= v1::AccessFlag_MAX; ++flag) {
    if (!v1::AccessFlag_IsValid(flag) || (access & (AccessMask{1} << flag)) == 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : "|",
                    v1::AccessFlag_Name(static_cast<v1::AccessFlag>(flag)));
  }
  return names.empty() ? "no access" : names;
}

}  // namespace mrd::fabric
