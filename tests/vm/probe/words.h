// The words that the probe is spoken to in, and the lines that it answers with.
#ifndef TESTS_VM_PROBE_WORDS_H_
#define TESTS_VM_PROBE_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace probe {

using Words = std::vector<std::string>;

Words Split(std::string_view line, char separator = ' ');

// Decimal or 0x, with an optional K or M. INVALID_ARGUMENT for anything else.
absl::StatusOr<uint64_t> ParseNumber(const std::string& text);

// What the peer (tests/vm/peer) calls DATA: hex:BYTES, or seed:LENGTH:SEED, whose byte i is the low
// 8 bits of SEED + 131 * i + (i >> 8).
absl::StatusOr<std::string> ParseData(const std::string& text);

// "error reason=NAME errno=NAME limit_name=... limit=N used=N advice=yes|no message=...": all that
// the status says, in words without spaces.
std::string FormatError(const absl::Status& status);

// A mistake in the script that speaks to the probe, as opposed to what mrd refuses.
absl::Status Misspoken(std::string_view what);
bool IsMisspoken(const absl::Status& status);

}  // namespace probe

#endif  // TESTS_VM_PROBE_WORDS_H_
