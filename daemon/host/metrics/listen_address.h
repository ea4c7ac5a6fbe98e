// Where metrics are served: an address of this host alone.
#ifndef MRD_DAEMON_HOST_METRICS_LISTEN_ADDRESS_H_
#define MRD_DAEMON_HOST_METRICS_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/unique_fd.h"

namespace mrd::host {

// The text of an error; empty: `text` is HOST:PORT with a loopback address (127.0.0.1, [::1],
// localhost), or unix:PATH.
std::string CheckListenAddress(const std::string& text);

// A socket that listens there and does not block. What it made in the file system it removes, where
// nobody else has put another in its place.
class ListenSocket {
 public:
  // REQUIRES: CheckListenAddress finds nothing. A socket that is left of a process that has gone is
  // replaced; one that somebody listens on is not. Of unix:PATH the mode is 0660. Errors: say the
  // address, the cause and what to do.
  static absl::StatusOr<ListenSocket> Open(const std::string& text);

  ListenSocket() = default;
  ListenSocket(ListenSocket&&) = default;
  ListenSocket& operator=(ListenSocket&&) = default;
  ~ListenSocket();

  UniqueFd socket;
  std::string where;  // As it is now: with the port that the kernel chose.

 private:
  std::string path_;
  UniqueFd file_;  // O_PATH: what was made there.
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_LISTEN_ADDRESS_H_
