#include "client/mrctl/bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "client/mrctl/table.h"
#include "client/mrctl/terminal.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

constexpr size_t kShortest = 10;  // Of a bar.
constexpr size_t kLongest = 60;

}  // namespace

std::string BarLine(const std::string& what, uint64_t done, uint64_t total, size_t width) {
  done = std::min(done, total);
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  char percent[16];
  // 100 % is said of the whole alone.
  snprintf(percent, sizeof percent, "%3d%%", done == total ? 100 : static_cast<int>(part * 100));
  const std::string tail =
      std::string("] ") + percent + "  " + FormatSize(done) + " of " + FormatSize(total);
  const std::string head = what + " [";
  const size_t taken = head.size() + tail.size();
  const size_t room = width > taken + kShortest ? width - taken : kShortest;
  const size_t length = std::min(room, kLongest);
  const auto full = static_cast<size_t>(part * static_cast<double>(length));
  return Cut(head + std::string(full, '#') + std::string(length - full, '.') + tail, width);
}

Bar::Bar(bool shown) : shown_(shown && isatty(STDERR_FILENO) == 1) {}

Bar::~Bar() {
  if (written_) fputs("\r\x1b[K", stderr);
}

void Bar::Show(const std::string& what, uint64_t done, uint64_t total) {
  if (!shown_) return;
  // A line that is full would go on in the next one.
  const size_t width = WidthOf(STDERR_FILENO);
  Write(BarLine(what, done, total, width > 1 ? width - 1 : 79));
}

void Bar::Say(const std::string& text) {
  if (shown_) Write(text);
}

void Bar::Write(const std::string& line) {
  written_ = true;
  fprintf(stderr, "\r%s\x1b[K", line.c_str());
  fflush(stderr);
}

}  // namespace mrctl
