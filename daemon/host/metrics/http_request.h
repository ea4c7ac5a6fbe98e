// As much of HTTP/1.1 as GET /metrics needs: a request without a body, one a connection.
#ifndef MRD_DAEMON_HOST_METRICS_HTTP_REQUEST_H_
#define MRD_DAEMON_HOST_METRICS_HTTP_REQUEST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mrd::host {

inline constexpr size_t kMostRequestBytes = 4 << 10;

struct HttpAnswer {
  const char* status;  // "200 OK"
  const char* text;    // Of an error; null: the metrics.
  bool head = false;   // Headers only.
};

// What to answer to the bytes that have come so far; nothing: the request is not complete. What
// stands behind its head is not looked at.
std::optional<HttpAnswer> AnswerTo(std::string_view bytes);

// Status line and headers, the empty line included.
std::string HeadOf(const HttpAnswer& answer, size_t length);

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_HTTP_REQUEST_H_
