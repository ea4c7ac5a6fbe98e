// The screen of `mrctl top`, as text.
#ifndef MRD_CLIENT_MRCTL_TOP_VIEW_H_
#define MRD_CLIENT_MRCTL_TOP_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/mrctl/top_model.h"

namespace mrctl {

struct TopLook {
  TopOrder order = TopOrder::kBytes;
  bool reverse = false;
  size_t columns = 0;        // 0: lines as long as they are.
  size_t rows = 0;           // 0: all sessions, and no line of keys.
  bool color = false;        // With what makes a line stand out on a terminal.
  std::string trouble = {};  // Why what is shown is old; empty: it is not.
};

// At most `rows` lines of at most `columns` columns; none but the last without a line end. `now` is
// Unix time, `own` mrctl's own session.
std::string DrawTop(const TopModel& model, const TopLook& look, int64_t now, uint64_t own);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_TOP_VIEW_H_
