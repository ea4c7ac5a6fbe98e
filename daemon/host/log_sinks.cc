#include "daemon/host/log_sinks.h"

// Where in this file a line was sent from says nothing.
#define SD_JOURNAL_SUPPRESS_LOCATION

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/log.h"
#include "spdlog/details/null_mutex.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace mrd::host {
namespace {

// Of a field's value: a client's text may be in it.
constexpr size_t kMostValue = 4096;

std::string_view TextOf(const spdlog::details::log_msg& message) {
  return {message.payload.data(), message.payload.size()};
}

int PriorityOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return LOG_CRIT;
    case spdlog::level::err:
      return LOG_ERR;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::info:
      return LOG_INFO;
    default:
      return LOG_DEBUG;
  }
}

// No lock: each entry is one datagram.
class JournalSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const log::Fields* fields = log::Current();
    const std::string line = log::Line(TextOf(message), fields);
    std::vector<std::string> entry;
    entry.push_back("MESSAGE=" + line);
    entry.push_back("PRIORITY=" + std::to_string(PriorityOf(message.level)));
    if (fields != nullptr) {
      for (const log::Field& field : fields->all()) {
        entry.push_back(log::JournalName(field) + "=" + log::Escaped(field.value, kMostValue));
      }
    }
    std::vector<iovec> parts;
    for (std::string& part : entry) parts.push_back({part.data(), part.size()});
    if (sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) < 0) {
      fprintf(stderr, "%s\n", line.c_str());
    }
  }
  void flush_() override {}
};

// The pattern's %*.
class LineFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string line = log::Line(TextOf(message), log::Current());
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LineFlag>();
  }
};

}  // namespace

bool StderrIsJournal() {
  const char* const stream = getenv("JOURNAL_STREAM");
  if (stream == nullptr) return false;
  unsigned long long device, inode;
  int length = 0;
  if (sscanf(stream, "%llu:%llu%n", &device, &inode, &length) != 2 || stream[length] != '\0') {
    return false;
  }
  struct stat found;
  return fstat(STDERR_FILENO, &found) == 0 && found.st_dev == device && found.st_ino == inode;
}

std::shared_ptr<spdlog::sinks::sink> MakeJournalSink() { return std::make_shared<JournalSink>(); }

std::shared_ptr<spdlog::sinks::sink> MakeTextSink() {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LineFlag>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %*");
  sink->set_formatter(std::move(formatter));
  return sink;
}

}  // namespace mrd::host
