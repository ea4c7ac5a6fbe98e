#include "client/mrctl/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "daemon/broker/policy/text.h"

namespace mrctl {
namespace {

// Columns on a terminal, taking each character of UTF-8 for one.
size_t Width(const std::string& cell) {
  return std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

std::string Cut(const std::string& line, size_t width) {
  if (width == 0 || Width(line) <= width) return line;
  size_t bytes = 0;
  for (size_t columns = 0; bytes < line.size(); ++bytes) {
    // At the first byte of a character.
    if ((line[bytes] & 0xc0) != 0x80 && ++columns == width) break;
  }
  return line.substr(0, bytes) + "~";
}

Table::Table(std::initializer_list<std::string> headings) {
  std::vector<std::string> row;
  for (const std::string& heading : headings) {
    right_.push_back(heading[0] == '>');
    row.push_back(right_.back() ? heading.substr(1) : heading);
  }
  rows_.push_back(std::move(row));
}

void Table::Add(std::vector<std::string> cells) {
  // Names come from clients: a control character would let one write to the operator's terminal.
  for (std::string& cell : cells) cell = mrd::policy::Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Text(size_t width, size_t gap) const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      if (i > 0) line.append(gap, ' ');
      line += right_[i] ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += Cut(line, width) + '\n';
  }
  return text;
}

}  // namespace mrctl
