#include "daemon/log.h"

#include <string.h>

#include <charconv>

#include "spdlog/spdlog.h"

namespace mrd::log {
namespace {

constexpr size_t kMostText = 2048;
constexpr size_t kMostValue = 512;

thread_local const Fields* current = nullptr;

bool IsErrno(const Field& field) { return strcmp(field.key, "errno") == 0; }

// How many bytes of UTF-8 begin `text` as one printable character; 0: none.
size_t Printable(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  uint32_t code = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  constexpr uint32_t kFirstOfLength[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kFirstOfLength[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
    return 0;
  }
  if (code < 0xa0) return 0;                       // C1 controls.
  if (code >= 0x2028 && code <= 0x202e) return 0;  // Line ends; what turns text around.
  if (code >= 0x2066 && code <= 0x2069) return 0;  // The same.
  return length;
}

void AppendEscaped(char byte, std::string* out) {
  switch (byte) {
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      constexpr char kDigits[] = "0123456789abcdef";
      const auto value = static_cast<unsigned char>(byte);
      *out += "\\x";
      *out += kDigits[value >> 4];
      *out += kDigits[value & 15];
  }
}

std::string Quoted(const std::string& escaped) {
  if (!escaped.empty() && escaped.find_first_of(" \"=") == std::string::npos) return escaped;
  std::string quoted = "\"";
  for (const char c : escaped) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string JournalName(const Field& field) {
  if (IsErrno(field)) return "ERRNO";
  std::string name = "MRD_";
  for (const char* c = field.key; *c != '\0'; ++c) {
    name += *c >= 'a' && *c <= 'z' ? static_cast<char>(*c - 'a' + 'A') : '_';
  }
  return name;
}

std::string TextValue(const Field& field) {
  if (!IsErrno(field)) return field.value;
  int number = 0;
  std::from_chars(field.value.data(), field.value.data() + field.value.size(), number);
  const char* name = strerrorname_np(number);
  return name ? name : field.value;
}

bool Wanted(spdlog::level::level_enum level) { return spdlog::should_log(level); }

void Write(spdlog::level::level_enum level, std::string_view text, const Fields& fields) {
  if (!Wanted(level)) return;
  // The logger is a synchronous one: its sinks run in this thread, before log() returns.
  current = &fields;
  spdlog::log(level, spdlog::string_view_t(text.data(), text.size()));
  current = nullptr;
}

const Fields* Current() { return current; }

std::string Escaped(std::string_view text, size_t most) {
  const bool cut = text.size() > most;
  std::string out;
  size_t i = 0;
  while (i < text.size() && i < most) {
    const size_t length = Printable(text.substr(i));
    if (length == 0) {
      AppendEscaped(text[i++], &out);
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return cut ? out + "..." : out;
}

std::string Line(std::string_view text, const Fields* fields) {
  std::string line = Escaped(text, kMostText);
  if (fields == nullptr || fields->all().empty()) return line;
  line += ' ';
  for (const Field& field : fields->all()) {
    line += ' ';
    line += field.key;
    line += '=';
    line += Quoted(Escaped(TextValue(field), kMostValue));
  }
  return line;
}

}  // namespace mrd::log
