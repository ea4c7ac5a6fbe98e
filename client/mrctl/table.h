// Text in columns, for people.
#ifndef MRD_CLIENT_MRCTL_TABLE_H_
#define MRD_CLIENT_MRCTL_TABLE_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace mrctl {

// At most `width` columns of it, the last of them "~" where something was cut; 0: all. Takes each
// character of UTF-8 for one column.
std::string Cut(const std::string& line, size_t width);

class Table final {
 public:
  // A heading that begins with '>' (which is not shown) has its column set to the right.
  explicit Table(std::initializer_list<std::string> headings);

  // REQUIRES: as many cells as headings.
  void Add(std::vector<std::string> cells);

  bool empty() const { return rows_.size() == 1; }

  // All lines, the headings first; `gap` spaces between columns, none at the end of a line. Lines
  // that are longer than `width` columns are cut there; 0: none is.
  std::string Text(size_t width = 0, size_t gap = 2) const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_TABLE_H_
