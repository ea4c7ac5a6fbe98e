#include "daemon/fabric/verbs/errors.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "mrd/v1/status.h"

namespace mrd::fabric::verbs {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// "Invalid argument (EINVAL)"
std::string Describe(int error) {
  const char* text = strerrordesc_np(error);
  return absl::StrCat(text != nullptr ? text : "unknown error", " (", ErrnoName(error), ")");
}

// Whole pages that pinning `spec` adds to the process' count, in bytes.
uint64_t PinnedBy(const RegionSpec& spec) {
  const uint64_t page = sysconf(_SC_PAGESIZE);
  const uint64_t offset = spec.iova & (page - 1);
  return (offset + spec.length + page - 1) / page * page;
}

// What this host did not give. `limited` is the limit that a want of memory may be due to.
absl::Status LocalError(const std::string& what, int error, ErrorFacts limited,
                        std::string_view cgroup) {
  switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT: {
      const std::string so_far = absl::StrCat(" (", limited.used, " of ", limited.limit, ")");
      limited.errno_value = error;
      if (limited.limit_name.empty()) {
        limited.advice = "The kernel has no memory, or a limit of its own is reached; see dmesg";
      } else if (limited.used >= limited.limit) {
        limited.advice = absl::StrCat("The limit is reached", so_far,
                                      ": end what is not needed, or use another device");
      } else {
        limited.advice = absl::StrCat("This daemon has not reached the limit", so_far,
                                      ": other processes hold the rest, or the kernel has no "
                                      "memory; see 'rdma resource show' and dmesg");
      }
      return MakeError(v1::DEVICE_LIMIT, what, std::move(limited));
    }
    case EAGAIN:
      // rdmacg_try_charge (kernel/cgroup/rdma.c): the only one that says so.
      return MakeError(v1::DEVICE_LIMIT, what,
                       {.errno_value = error,
                        .limit_name = std::string(cgroup),
                        .advice = "Raise rdma.max of the daemon's cgroup, or of one above it; "
                                  "rdma.current tells what is used"});
    case EOPNOTSUPP:
    case ENOSYS:
      return MakeError(v1::UNSUPPORTED, what,
                       {.errno_value = error, .advice = "Use another device"});
    case EACCES:
    case EPERM:
      return MakeError(v1::DEVICE_ERROR, what,
                       {.errno_value = error,
                        .advice = "The daemon needs read and write access to /dev/infiniband, and "
                                  "credentials that have not changed since it opened the device"});
    case EMFILE:
    case ENFILE:
      return MakeError(
          v1::DEVICE_ERROR, what,
          {.errno_value = error, .advice = "Raise the daemon's limit of open files (LimitNOFILE)"});
    default:
      return MakeError(v1::DEVICE_ERROR, what,
                       {.errno_value = error, .advice = "See the kernel's log (dmesg)"});
  }
}

}  // namespace

absl::Status RemovedError(const DeviceInfo& device, int error) {
  return MakeError(
      v1::DEVICE_REMOVED, absl::StrCat("device ", device.name, " has gone away"),
      {.errno_value = error, .advice = "List the devices and register anew on one that is there"});
}

bool MeansRemoved(int error) { return error == EIO || error == ENODEV || error == ENXIO; }

absl::Status DeviceError(const Failed& failed, int error) {
  if (MeansRemoved(error)) return RemovedError(failed.device, error);
  ErrorFacts limited;
  if (!failed.limit_name.empty()) {
    limited.limit_name = absl::StrCat(View(failed.limit_name), " of device ", failed.device.name);
    limited.limit = failed.limit;
    limited.used = failed.used;
  }
  return LocalError(
      absl::StrCat("device ", failed.device.name, " gave no ", View(failed.what), ": ",
                   Describe(error)),
      error, std::move(limited),
      absl::StrCat("rdma.max, device ", failed.device.name, ", of the daemon's cgroup"));
}

absl::Status IdError(std::string_view peer, int error) {
  const std::string what =
      absl::StrCat("no connection with ", View(peer), ": no rdma_cm id: ", Describe(error));
  if (MeansRemoved(error) || error == ENOENT) {
    return MakeError(v1::DEVICE_ERROR, what,
                     {.errno_value = error,
                      .advice = "Is the kernel's module rdma_ucm loaded, and /dev/infiniband/"
                                "rdma_cm there?"});
  }
  return LocalError(what, error, {}, "rdma.max of the daemon's cgroup");
}

absl::Status RegisterError(Api& api, const DriverFacts& driver, const Failed& failed,
                           const RegionSpec& spec, int error) {
  const std::string what =
      absl::StrCat("device ", failed.device.name, " did not register ", spec.length, " bytes with ",
                   AccessNames(spec.access), ": ", Describe(error));
  constexpr AccessMask kSpecial =
      Bit(v1::REMOTE_ATOMIC) | Bit(v1::RELAXED_ORDERING) | Bit(v1::ON_DEMAND) | Bit(v1::HUGETLB);
  switch (error) {
    case ENOMEM: {
      // The kernel gives one ENOMEM for three things (ib_umem_get: the limit; the driver: no more
      // regions, no memory).
      const uint64_t limit = api.MemlockLimit();
      const uint64_t used = api.PinnedBytes();
      const uint64_t needed = PinnedBy(spec);
      const bool exceeds = limit != UINT64_MAX && (used >= limit || needed > limit - used);
      const bool enforced = driver.enforces_memlock || !api.HasIpcLock();
      if (exceeds && enforced && (spec.access & Bit(v1::ON_DEMAND)) == 0) {
        return MakeError(
            v1::MEMLOCK, what,
            {.errno_value = error,
             .limit_name = "RLIMIT_MEMLOCK of the daemon",
             .limit = limit,
             .used = used,
             .advice = absl::StrCat(
                 "The daemon has pinned ", used, " of ", limit,
                 " bytes (RLIMIT_MEMLOCK): start it ",
                 driver.enforces_memlock
                     ? "with LimitMEMLOCK=infinity, which this device's driver asks for in spite "
                       "of CAP_IPC_LOCK"
                     : "with CAP_IPC_LOCK, or with LimitMEMLOCK=infinity")});
      }
      return DeviceError(failed, error);
    }
    case EFAULT:
      return MakeError(v1::ADDRESS_UNUSABLE, what,
                       {.errno_value = error,
                        .advice = "Every page of the range must exist and be writable; was the "
                                  "buffer truncated meanwhile?"});
    case EINVAL:
      if ((spec.access & kSpecial) != 0) {
        return MakeError(v1::ACCESS_UNSUPPORTED, what,
                         {.errno_value = error,
                          .advice = absl::StrCat("Leave out ", AccessNames(spec.access & kSpecial),
                                                 ", or use another device")});
      }
      break;
    default:
      break;
  }
  return DeviceError(failed, error);
}

absl::Status BindError(std::string_view address, int error) {
  const std::string what = absl::StrCat("cannot listen on ", View(address), ": ", Describe(error));
  switch (error) {
    case EADDRINUSE:
      return MakeError(v1::CONNECTION_FAILED, what,
                       {.errno_value = error, .advice = "Use another port, or 0 for any"});
    case EADDRNOTAVAIL:
    case ENODEV:
    case EAFNOSUPPORT:
      return MakeError(v1::ADDRESS_INVALID, what,
                       {.errno_value = error,
                        .advice = "Use an address of a device here (the list of devices has them) "
                                  "whose port is up"});
    case EACCES:
      return MakeError(v1::ADDRESS_INVALID, what,
                       {.errno_value = error,
                        .advice = "The daemon may not bind ports below 1024: use another"});
    default:
      return MakeError(v1::DEVICE_ERROR, what,
                       {.errno_value = error,
                        .advice = "Is the kernel's module rdma_ucm loaded, and may the daemon open "
                                  "/dev/infiniband/rdma_cm?"});
  }
}

absl::Status ConnectionError(std::string_view peer, std::string_view what, int error) {
  const char* advice = "See that the peer is up and speaks RDMA (rdma_cm, port space TCP)";
  switch (error) {
    case ECONNREFUSED:
      advice = "See that the peer listens on this address and port";
      break;
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENETUNREACH:
    case EHOSTUNREACH:
      advice = "See that a device here has a route to the address; loopback is none";
      break;
    case ETIMEDOUT:
      advice = "See that the peer is up and that no firewall is in the way";
      break;
    default:
      break;
  }
  std::string text = absl::StrCat("no connection with ", View(peer), ": ", View(what));
  if (error != 0) absl::StrAppend(&text, ": ", Describe(error));
  // No peer causes these.
  if (error == ENOMEM || error == EMFILE || error == ENFILE) {
    return LocalError(text, error, {}, "");
  }
  return MakeError(v1::CONNECTION_FAILED, text, {.errno_value = error, .advice = advice});
}

}  // namespace mrd::fabric::verbs
