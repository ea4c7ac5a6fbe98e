#include "client/mrctl/units.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace mrctl {
namespace {

using mrd::v1::Access;
using mrd::v1::AccessFlag;

// The largest first: so that formatting finds the unit.
constexpr struct {
  char letter;
  int shift;
} kSizes[] = {{'E', 60}, {'P', 50}, {'T', 40}, {'G', 30}, {'M', 20}, {'K', 10}};

// The command line names the option before it.
absl::Status Invalid(std::string_view text, std::string_view expected) {
  return absl::InvalidArgumentError("expected " + std::string(expected) + ", not \"" +
                                    std::string(text) + "\"");
}

absl::Status AddAccess(std::string_view word, Access* access) {
  std::string name(word);
  absl::AsciiStrToUpper(&name);
  Access::Preset preset;
  AccessFlag flag;
  if (Access::Preset_Parse("REG_" + name, &preset)) {
    if (access->preset() == Access::PRESET_UNSPECIFIED) {
      access->set_preset(preset);
    } else {
      // A call takes one preset; the second one's flag says the same.
      access->add_flags(preset == Access::REG_READ    ? mrd::v1::REMOTE_READ
                        : preset == Access::REG_WRITE ? mrd::v1::REMOTE_WRITE
                                                      : mrd::v1::LOCAL_WRITE);
    }
    return absl::OkStatus();
  }
  if (AccessFlag_Parse(name, &flag) && flag != mrd::v1::ACCESS_FLAG_UNSPECIFIED) {
    access->add_flags(flag);
    return absl::OkStatus();
  }
  return Invalid(word,
                 "msgs, read, write, or flags: local_write, remote_read, remote_write, "
                 "remote_atomic, relaxed_ordering, on_demand, hugetlb");
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  const absl::Status invalid = Invalid(text, "a size: bytes, or a number with K, M, G or T");
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value == 0) return invalid;
  std::string unit(end, text.data() + text.size());
  absl::AsciiStrToUpper(&unit);
  if (unit.empty() || unit == "B") return value;
  for (const auto& [letter, shift] : kSizes) {
    if (unit[0] != letter) continue;
    const std::string rest = unit.substr(1);
    if (rest != "" && rest != "B" && rest != "IB") return invalid;
    if (value > UINT64_MAX >> shift) return Invalid(text, "a size of at most 16 EiB");
    return value << shift;
  }
  return invalid;
}

absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  if (absl::SimpleAtoi({text.data(), text.size()}, &value) && value >= least && value <= most) {
    return value;
  }
  return Invalid(text,
                 "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

absl::StatusOr<double> ParseSeconds(std::string_view text) {
  double value = 0;
  // Not-a-number is in no range.
  if (absl::SimpleAtod({text.data(), text.size()}, &value) && value >= 0 && value <= 1e9) {
    return value;
  }
  if (const auto duration = ParseDuration(text); duration.ok()) {
    return std::chrono::duration<double>(*duration).count();
  }
  return Invalid(text, "seconds, from 0 to 1000000000, such as 10 or 0.5, or a time such as 5m");
}

absl::StatusOr<uint32_t> ParseMode(std::string_view text) {
  uint32_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (error == std::errc() && end == text.data() + text.size() && mode <= 0777) return mode;
  return Invalid(text, "an octal mode: 0600, 0660, 0606 or 0666");
}

std::string FormatSize(uint64_t bytes) {
  for (const auto& [letter, shift] : kSizes) {
    const uint64_t unit = uint64_t{1} << shift;
    if (bytes < unit) continue;
    char text[32];
    if (bytes % unit == 0) {
      snprintf(text, sizeof(text), "%lu %ciB", static_cast<unsigned long>(bytes / unit), letter);
    } else {
      snprintf(text, sizeof(text), "%.1f %ciB",
               static_cast<double>(bytes) / static_cast<double>(unit), letter);
    }
    return text;
  }
  return std::to_string(bytes) + " B";
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const absl::Status invalid =
      Invalid(text, "ADDRESS:PORT, an IPv6 address in brackets: [ADDRESS]:PORT");
  HostPort result;
  std::string_view port;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return invalid;
    result.host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (!port.empty() && port[0] != ':') return invalid;
  } else {
    const size_t colon = text.find(':');
    if (colon != text.rfind(':')) return invalid;  // An IPv6 address without brackets.
    result.host = text.substr(0, colon);
    port = colon == std::string_view::npos ? "" : text.substr(colon);
  }
  if (port.empty()) return result;
  port.remove_prefix(1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (error != std::errc() || end != port.data() + port.size()) return invalid;
  return result;
}

std::string FormatHostPort(std::string_view host, uint32_t port) {
  std::string text(host);
  if (text.find(':') != std::string::npos) text = "[" + text + "]";
  return text + ":" + std::to_string(port);
}

absl::StatusOr<Access> ParseAccess(std::string_view text) {
  Access access;
  for (;;) {
    const size_t comma = text.find(',');
    absl::Status added = AddAccess(text.substr(0, comma), &access);
    if (!added.ok()) return added;
    if (comma == std::string_view::npos) return access;
    text.remove_prefix(comma + 1);
  }
}

std::string FormatAccess(const std::vector<AccessFlag>& flags) {
  std::string text;
  for (const AccessFlag flag : flags) {
    if (!text.empty()) text += ',';
    std::string name = AccessFlag_Name(flag);
    absl::AsciiStrToLower(&name);
    text += name;
  }
  return text;
}

std::string FormatAge(int64_t seconds) {
  if (seconds < 0) seconds = 0;
  const auto number = [](int64_t n) { return std::to_string(n); };
  if (seconds < 60) return number(seconds) + " s";
  const int64_t minutes = seconds / 60;
  if (minutes < 60) return number(minutes) + " min";
  const int64_t hours = minutes / 60;
  if (hours < 24) return number(hours) + " h " + number(minutes % 60) + " min";
  return number(hours / 24) + " d " + number(hours % 24) + " h";
}

std::string FormatShortAge(int64_t seconds) {
  if (seconds < 0) seconds = 0;
  const auto number = [](int64_t n, char unit) { return std::to_string(n) + unit; };
  if (seconds < 60) return number(seconds, 's');
  const int64_t minutes = seconds / 60;
  if (minutes < 60) return number(minutes, 'm');
  const int64_t hours = minutes / 60;
  if (hours < 24) return number(hours, 'h') + number(minutes % 60, 'm');
  const int64_t days = hours / 24;
  return days < 100 ? number(days, 'd') + number(hours % 24, 'h') : number(days, 'd');
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  const absl::Status invalid =
      Invalid(text, "a duration of more than 0 and at most 365d, such as 500ms, 10s, 5m, 2h or 1d");
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view unit = digits == text.npos ? "s" : text.substr(digits);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  const auto known = std::find_if(std::begin(kUnits), std::end(kUnits),
                                  [&](const auto& each) { return each.first == unit; });
  double value = 0;
  const std::string_view number = text.substr(0, digits);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (known == std::end(kUnits) || error != std::errc() || number.empty() ||
      end != number.data() + number.size()) {
    return invalid;
  }
  const double seconds = value * known->second;
  if (!(seconds > 0) || seconds > 365 * 86400.0) return invalid;
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::string FormatTime(int64_t unix_seconds) {
  const time_t when = unix_seconds;
  tm parts;
  char text[64];
  if (localtime_r(&when, &parts) == nullptr) return "?";
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string FormatRate(double per_second) {
  char text[32];
  snprintf(text, sizeof text, per_second < 99.95 ? "%.1f" : "%.0f", per_second);
  return std::string(text) == "0.0" ? "0" : text;
}

std::string FormatKey(uint32_t key) {
  char text[16];
  snprintf(text, sizeof(text), "0x%08x", key);
  return text;
}

std::string FormatAddress(uint64_t addr) {
  char text[24];
  snprintf(text, sizeof(text), "0x%012lx", static_cast<unsigned long>(addr));
  return text;
}

}  // namespace mrctl
