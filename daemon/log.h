// Lines of the log with fields: what a program can ask for (journalctl MRD_SESSION=12) beside what
// a person reads. spdlog stays the logger; its sinks find the fields of the line here.
//
// What clients say may stand in the text and in values: control characters, line ends and what is
// no UTF-8 go out escaped, and the length is bounded. A session's token is never to be given to it.
#ifndef MRD_DAEMON_LOG_H_
#define MRD_DAEMON_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spdlog/common.h"

namespace mrd::log {

struct Field {
  const char* key;  // Lower-case, as the text has it: "session".
  std::string value;
};

// The name that a field has in the journal: MRD_SESSION of session, ERRNO of errno.
std::string JournalName(const Field& field);
// Its value in the text: ENOMEM, where the journal has the number.
std::string TextValue(const Field& field);

// Built in one expression: log::Fields().Session(12).Uid(1000).
class Fields {
 public:
  Fields& Session(uint64_t id) { return Add("session", std::to_string(id)); }
  Fields& Uid(uint32_t uid) { return Add("uid", std::to_string(uid)); }
  Fields& Pid(int pid) { return Add("pid", pid == 0 ? "hidden" : std::to_string(pid)); }
  Fields& Device(std::string name) { return Add("device", std::move(name)); }
  Fields& Lease(uint64_t id) { return Add("lease", std::to_string(id)); }
  Fields& Reason(std::string reason) { return Add("reason", std::move(reason)); }
  Fields& Errno(int number) { return Add("errno", std::to_string(number)); }
  // `key`: a literal, lower-case letters and '_'.
  Fields& Add(const char* key, std::string value) {
    fields_.push_back({key, std::move(value)});
    return *this;
  }
  Fields& Add(const Fields& others) {
    fields_.insert(fields_.end(), others.fields_.begin(), others.fields_.end());
    return *this;
  }

  const std::vector<Field>& all() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

// Whether lines of this level are written at all: before work that only the log needs.
bool Wanted(spdlog::level::level_enum level);

// Writes one line, from any thread.
void Write(spdlog::level::level_enum level, std::string_view text, const Fields& fields);

// For sinks: the fields of the line that this thread is writing; null: it has none.
const Fields* Current();

// As much of it as a terminal or a log takes unharmed, `most` bytes of what was given: control
// characters (C1 too), line separators and bytes that are no UTF-8 as \n, \x1b and the like.
std::string Escaped(std::string_view text, size_t most);

// The line as a person reads it: `text  key=value ...`, escaped; a value with spaces in quotes.
std::string Line(std::string_view text, const Fields* fields);

}  // namespace mrd::log

#endif  // MRD_DAEMON_LOG_H_
