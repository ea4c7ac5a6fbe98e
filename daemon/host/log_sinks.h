// Where the log's lines go: the journal, with fields, or standard error, as text.
#ifndef MRD_DAEMON_HOST_LOG_SINKS_H_
#define MRD_DAEMON_HOST_LOG_SINKS_H_

#include <memory>

#include "spdlog/sinks/sink.h"

namespace mrd::host {

// Whether standard error is the journal's stream, as systemd tells services: $JOURNAL_STREAM has
// its device and inode (systemd.exec(5)).
bool StderrIsJournal();

// One entry a line by sd_journal_sendv(3): MESSAGE (the text as Line() has it), PRIORITY, and the
// line's fields under their journal names. Where the journal does not take it, the text goes to
// standard error. Thread-safe.
std::shared_ptr<spdlog::sinks::sink> MakeJournalSink();

// `time level text  key=value ...` on standard error. Thread-safe.
std::shared_ptr<spdlog::sinks::sink> MakeTextSink();

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_LOG_SINKS_H_
