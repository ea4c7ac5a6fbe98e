#include "daemon/host/status_line.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace mrd::host {
namespace {

std::string Counted(uint64_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

std::string BytesForPeople(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  size_t unit = 0;
  while (bytes >= 1024 * 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes / 1024, ".", bytes % 1024 * 10 / 1024, " ", kUnits[unit]);
}

std::string StatusLine(broker::Broker& broker) {
  const broker::Amounts all = broker.books().Total();
  const char* const state = broker.draining()           ? "ending: "
                            : broker.TakesMore("").ok() ? ""
                                                        : "drained: ";
  return absl::StrCat(state, Counted(all.sessions, "session"), ", ", Counted(all.regions, "region"),
                      ", ", BytesForPeople(all.bytes));
}

}  // namespace mrd::host
