#include "daemon/host/metrics/http_request.h"

#include "absl/strings/str_cat.h"

namespace mrd::host {
namespace {

constexpr HttpAnswer kBad = {"400 Bad Request", "this is no request of HTTP/1.1\n"};

HttpAnswer AnswerToLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return kBad;
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return kBad;
  for (const char c : line) {
    if (c < 0x20 || c > 0x7e) return kBad;
  }
  target = target.substr(0, target.find('?'));
  const bool head = method == "HEAD";
  if (!head && method != "GET") {
    return {"405 Method Not Allowed", "only GET and HEAD of /metrics are there\n"};
  }
  if (target != "/metrics") return {"404 Not Found", "only /metrics is there\n", head};
  return {"200 OK", nullptr, head};
}

}  // namespace

std::optional<HttpAnswer> AnswerTo(std::string_view bytes) {
  const size_t line = bytes.find("\r\n");
  const bool complete = bytes.find("\r\n\r\n") != std::string_view::npos;
  if (complete) return AnswerToLine(bytes.substr(0, line));
  // What is no HTTP is not waited for.
  if (line != std::string_view::npos) {
    if (const HttpAnswer early = AnswerToLine(bytes.substr(0, line)); early.text == kBad.text) {
      return early;
    }
  }
  if (bytes.size() >= kMostRequestBytes) {
    return HttpAnswer{"431 Request Header Fields Too Large", "a request has at most 4 KiB here\n"};
  }
  return std::nullopt;
}

std::string HeadOf(const HttpAnswer& answer, size_t length) {
  return absl::StrCat(
      "HTTP/1.1 ", answer.status, "\r\nContent-Type: text/plain; ",
      answer.text ? "" : "version=0.0.4; ", "charset=utf-8\r\nContent-Length: ", length, "\r\n",
      answer.status[0] == '4' && answer.status[2] == '5' ? "Allow: GET, HEAD\r\n" : "",
      "Connection: close\r\n\r\n");
}

}  // namespace mrd::host
