#include "tests/vm/probe/words.h"

#include <errno.h>
#include <stdlib.h>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "mrd/v1/status.h"

namespace probe {
namespace {

constexpr absl::string_view kMisspoken = "probe/misspoken";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string AsWord(std::string text) {
  for (char& c : text) {
    if (c == ' ' || c == '\n' || c == '\t') c = '_';
  }
  return text.empty() ? "-" : text;
}

}  // namespace

Words Split(std::string_view line, char separator) {
  return absl::StrSplit(View(line), separator, absl::SkipEmpty());
}

absl::StatusOr<uint64_t> ParseNumber(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  uint64_t value = strtoull(text.c_str(), &end, 0);
  if (end != text.c_str() && *end == 'K') {
    value <<= 10;
    ++end;
  } else if (end != text.c_str() && *end == 'M') {
    value <<= 20;
    ++end;
  }
  if (errno != 0 || end == text.c_str() || *end != '\0') return Misspoken("not a number: " + text);
  return value;
}

absl::StatusOr<std::string> ParseData(const std::string& text) {
  const Words parts = Split(text, ':');
  if (parts.size() == 2 && parts[0] == "hex" && parts[1].size() % 2 == 0 &&
      parts[1].find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) {
    return absl::HexStringToBytes(parts[1]);
  }
  if (parts.size() == 3 && parts[0] == "seed") {
    const auto length = ParseNumber(parts[1]);
    const auto seed = ParseNumber(parts[2]);
    if (length.ok() && seed.ok()) {
      std::string bytes(*length, '\0');
      for (uint64_t i = 0; i < *length; ++i) {
        bytes[i] = static_cast<char>(*seed + 131 * i + (i >> 8));
      }
      return bytes;
    }
  }
  return Misspoken("not DATA: " + text);
}

std::string FormatError(const absl::Status& status) {
  const auto detail = mrd::DetailOf(status);
  if (!detail) {
    return absl::StrCat(
        "error reason=REASON_UNSPECIFIED code=", absl::StatusCodeToString(status.code()),
        " message=", AsWord(std::string(status.message())));
  }
  return absl::StrCat("error reason=", mrd::v1::Reason_Name(detail->reason()),
                      " errno=", AsWord(detail->errno_name()),
                      " limit_name=", AsWord(detail->limit_name()), " limit=", detail->limit(),
                      " used=", detail->used(), " advice=", detail->advice().empty() ? "no" : "yes",
                      " message=", AsWord(std::string(status.message())));
}

absl::Status Misspoken(std::string_view what) {
  absl::Status status = absl::InvalidArgumentError(View(what));
  status.SetPayload(kMisspoken, absl::Cord());
  return status;
}

bool IsMisspoken(const absl::Status& status) { return status.GetPayload(kMisspoken).has_value(); }

}  // namespace probe
