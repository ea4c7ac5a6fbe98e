// The metrics as a file for node_exporter's textfile collector.
#ifndef MRD_DAEMON_HOST_METRICS_TEXTFILE_H_
#define MRD_DAEMON_HOST_METRICS_TEXTFILE_H_

#include <chrono>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "daemon/host/metrics/page.h"
#include "daemon/mutex.h"

namespace mrd::host {

// `text` in the place of whatever `path` is, mode 0644: who reads it sees all of the old or all of
// the new. A temporary file in the same directory, ".NAME.PID.tmp", which the collector does not
// read, is renamed. Errors say the path and the cause; then the old file stays, and no other.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

// Writes the file at once, then every 15 s, on a thread of its own: a disk that hangs keeps nobody
// else. The first error of a series is logged, and its end. Removes the file at its end, so that
// nobody takes a daemon that has gone for one that stands still.
class Textfile {
 public:
  static constexpr std::chrono::seconds kEvery{15};

  // `page` outlives it.
  Textfile(Page& page, std::string path, std::chrono::milliseconds every = kEvery);
  ~Textfile();

 private:
  void Run() MRD_EXCLUDES(mutex_);
  void WriteOnce();

  Page& page_;
  const std::string path_;
  const std::chrono::milliseconds every_;
  bool failed_ = false;  // Of the thread alone.
  bool written_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool ending_ MRD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_TEXTFILE_H_
