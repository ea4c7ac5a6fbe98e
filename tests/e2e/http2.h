// HTTP/2 by hand: gRPC calls whose client does what gRPC's own never would - closes the connection
// without reading, gives no flow-control window, sends garbage.
#ifndef MRD_TESTS_E2E_HTTP2_H_
#define MRD_TESTS_E2E_HTTP2_H_

#include <optional>
#include <string>

#include "daemon/unique_fd.h"
#include "tests/e2e/common.h"

namespace mrd::e2e {

class Http2 {
 public:
  enum Type : unsigned char {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8,
  };
  struct Frame {
    unsigned char type;
    unsigned char flags;
    uint32_t stream;
    std::string payload;
  };

  // What a client sends first of all.
  static constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  static std::string BigEndian(uint32_t value, int bytes);
  static std::string Encode(const Frame& frame);
  // The payload of the headers frame of a call. `token` may be empty: none.
  static std::string CallHeaders(const std::string& path, const std::string& token);

  // Connects to the gRPC socket in `dir` and sends the preface. `window`: how many bytes of each
  // answer the daemon may send unasked.
  explicit Http2(const std::string& dir, uint32_t window = 65535);

  // One unary call. Streams are odd numbers, each used once, in growing order. `path`:
  // "/mrd.v1.Sessions/GetStatus". False: the daemon has closed the connection.
  bool Call(uint32_t stream, const std::string& path, const std::string& token,
            const std::string& message);
  bool Send(const Frame& frame);
  bool SendBytes(const std::string& bytes);

  // The next frame; nothing: the end of the connection, or none in time.
  std::optional<Frame> Read(milliseconds within = kPatience);
  // The next frame of this type; others are dropped.
  std::optional<Frame> ReadType(Type type, milliseconds within = kPatience);
  // Whether the daemon closes the connection; frames before that are dropped.
  bool IsClosed(milliseconds within = kPatience);

  void Close() { fd_.reset(); }

 private:
  // At least so many bytes in unread_.
  bool Fill(size_t bytes, Clock::time_point deadline);

  UniqueFd fd_;
  std::string unread_;
  bool ended_ = false;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_HTTP2_H_
