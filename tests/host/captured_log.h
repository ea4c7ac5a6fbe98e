// What is logged while it lives, in place of where the log goes otherwise.
#ifndef MRD_TESTS_HOST_CAPTURED_LOG_H_
#define MRD_TESTS_HOST_CAPTURED_LOG_H_

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace mrd::host {

// Lines may come from any thread; they are to be read when none does.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>(
        "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(logger);
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }

  // Since the last time.
  std::string Taken() {
    std::string text = text_.str();
    text_.str("");
    return text;
  }
  size_t Lines() {
    const std::string text = Taken();
    return std::count(text.begin(), text.end(), '\n');
  }

 private:
  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

}  // namespace mrd::host

#endif  // MRD_TESTS_HOST_CAPTURED_LOG_H_
