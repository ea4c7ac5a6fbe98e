#include "daemon/broker/policy/text.h"

#include <cstdint>

namespace mrd::policy {
namespace {

// The character that `text` begins with, and its bytes; 0 bytes: it is malformed (RFC 3629).
struct Character {
  uint32_t code;
  size_t bytes;
};

Character First(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {0, 0};
  uint32_t code = lead & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const uint32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {0, 0};
  return {code, bytes};
}

// C0, DEL and C1; line ends, and what turns text around.
bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

size_t InvalidUtf8At(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character character = First(text.substr(at));
    if (character.bytes == 0) break;
    at += character.bytes;
  }
  return at;
}

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    const Character character = First(text);
    if (character.bytes == 0 || IsControl(character.code)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const Character character = First(text);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes == 0 || IsControl(character.code)) {
      printable.append(bytes, '?');
    } else {
      printable += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return printable;
}

}  // namespace mrd::policy
