// A bar that shows how far something has come, on a terminal's line that is written over.
#ifndef MRD_CLIENT_MRCTL_BAR_H_
#define MRD_CLIENT_MRCTL_BAR_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace mrctl {

// "pinned   [#########...........]  45%  1.8 of 4 GiB": at most `width` columns, of which the bar
// has what is left. `done` beyond `total` means all.
std::string BarLine(const std::string& what, uint64_t done, uint64_t total, size_t width);

// Not thread-safe. Shows nothing where stderr is no terminal.
class Bar final {
 public:
  // `shown`: whether it may be, beside stderr's being a terminal.
  explicit Bar(bool shown);
  // Leaves an empty line, the cursor at its beginning.
  ~Bar();
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void Show(const std::string& what, uint64_t done, uint64_t total);
  // A word instead of a bar, while nobody knows how far it is.
  void Say(const std::string& text);

 private:
  void Write(const std::string& line);

  const bool shown_;
  bool written_ = false;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_BAR_H_
