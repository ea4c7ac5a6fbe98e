// A gRPC client that sends as much of its requests as the daemon takes, and never the last byte.
#ifndef MRD_TESTS_E2E_HOARDER_H_
#define MRD_TESTS_E2E_HOARDER_H_

#include <map>
#include <string>

#include "daemon/unique_fd.h"

namespace mrd::e2e {

// One connection, without a session. Never blocks.
class Hoarder {
 public:
  // Begins `streams` calls, each with a message of `bytes` bytes.
  Hoarder(const std::string& dir, int streams, uint32_t bytes);

  // Sends what the flow control allows now, and reads what has come. False: the connection is over.
  bool Pump();

 private:
  struct Stream {
    int64_t window;
    uint32_t left;  // Bytes that may be sent still.
  };

  void Read();
  void Handle(unsigned char type, unsigned char flags, uint32_t stream, const std::string& payload);

  UniqueFd fd_;
  std::string unsent_;
  std::string unread_;
  int64_t window_ = 65535;  // Of the connection.
  int64_t initial_window_ = 65535;
  std::map<uint32_t, Stream> streams_;
  bool over_ = false;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_HOARDER_H_
