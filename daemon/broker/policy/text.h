// Text that goes to terminals and logs.
#ifndef MRD_DAEMON_BROKER_POLICY_TEXT_H_
#define MRD_DAEMON_BROKER_POLICY_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace mrd::policy {

// The first byte that does not belong to well-formed UTF-8; text.size() where all do.
size_t InvalidUtf8At(std::string_view text);

// Well-formed UTF-8 without control characters (C0, DEL, C1), line ends of Unicode, and characters
// that turn round what stands beside them (U+202E ...): a name must not show as another one.
bool IsPrintable(std::string_view text);

// With a '?' for each byte of what is not.
std::string Printable(std::string_view text);

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_TEXT_H_
