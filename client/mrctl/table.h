// Text in columns, for people.
#ifndef MRD_CLIENT_MRCTL_TABLE_H_
#define MRD_CLIENT_MRCTL_TABLE_H_

#include <initializer_list>
#include <string>
#include <vector>

namespace mrctl {

class Table final {
 public:
  // A heading that begins with '>' (which is not shown) has its column set to the right.
  explicit Table(std::initializer_list<std::string> headings);

  // REQUIRES: as many cells as headings.
  void Add(std::vector<std::string> cells);

  bool empty() const { return rows_.size() == 1; }

  // All lines, the headings first; two spaces between columns, none at the end of a line.
  std::string Text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_TABLE_H_
