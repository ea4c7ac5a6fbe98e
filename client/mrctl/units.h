// Sizes, addresses and times as people write and read them.
#ifndef MRD_CLIENT_MRCTL_UNITS_H_
#define MRD_CLIENT_MRCTL_UNITS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "mrd/v1/registration.pb.h"

namespace mrctl {

// "4096", "4K", "64M", "1G", "2T", "64MiB": bytes, with powers of 1,024. INVALID_ARGUMENT for
// anything else, 0 and what overflows.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);

// "7": a whole number within these bounds.
absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t least, uint64_t most);

// "10", "0.5": at most 1e9; or as ParseDuration has it.
absl::StatusOr<double> ParseSeconds(std::string_view text);

// "0660": an octal mode of a domain.
absl::StatusOr<uint32_t> ParseMode(std::string_view text);

// The shortest exact form: "4 KiB", "64 MiB"; else with one decimal, "1.5 GiB"; below 1 KiB "12 B".
std::string FormatSize(uint64_t bytes);

struct HostPort {
  std::string host;  // Without brackets.
  uint16_t port = 0;
};

// "10.0.0.1:7471", "[fe80::1]:7471", ":7471" (no host), "10.0.0.1" (port 0).
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

// "10.0.0.1:7471"; an IPv6 address in brackets.
std::string FormatHostPort(std::string_view host, uint32_t port);

// A preset ("msgs", "read", "write"), flags of ibv_reg_mr(3) without IBV_ACCESS_ in either case
// ("local_write", "remote_read", "remote_write", "remote_atomic", "relaxed_ordering", "on_demand",
// "hugetlb"), or several joined with ",".
absl::StatusOr<mrd::v1::Access> ParseAccess(std::string_view text);

// "local_write,remote_read"
std::string FormatAccess(const std::vector<mrd::v1::AccessFlag>& flags);

// "7 s", "3 min", "4 h 12 min", "9 d 4 h".
std::string FormatAge(int64_t seconds);

// The same in at most six characters, for narrow columns: "7s", "3m", "4h12m", "9d4h", "412d".
std::string FormatShortAge(int64_t seconds);

// "1.5s", "200ms", "5m", "2h", "1d", "90" (seconds): more than 0 and at most 365 days.
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// "2026-11-30 19:42:23", of the time zone here.
std::string FormatTime(int64_t unix_seconds);

// "1234", "12.3", "0": of something a second, in at most six characters below a million.
std::string FormatRate(double per_second);

// "0x00001a2b"
std::string FormatKey(uint32_t key);
// "0x650000000000"
std::string FormatAddress(uint64_t addr);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_UNITS_H_
