#include "daemon/host/metrics/textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/unique_fd.h"
#include "mrd/v1/status.h"

namespace mrd::host {
namespace {

constexpr mode_t kMode = 0644;

absl::Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  v1::ErrorDetail detail;
  detail.set_errno_value(error);
  detail.set_errno_name(ErrnoName(error));
  return WithDetail(
      absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path, " (--metrics-textfile)")),
      detail);
}

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    done += wrote;
  }
  return true;
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::filesystem::path target(path);
  // Its own process' name: of two daemons with one path by mistake neither writes into the other's.
  const std::string temporary =
      target.parent_path() / absl::StrCat(".", target.filename().string(), ".", getpid(), ".tmp");
  // A daemon with this number may have been killed in between. O_EXCL follows no link that somebody
  // else has laid.
  unlink(temporary.c_str());
  UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!file) return Failed("make", temporary);
  absl::Status status;
  // The mode is subject to the umask. Nothing is synced: after a crash the file is of no use.
  if (!WriteAll(file.get(), text) || fchmod(file.get(), kMode) < 0) {
    status = Failed("write", temporary);
  } else if (rename(temporary.c_str(), path.c_str()) < 0) {
    status = Failed("replace", path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Textfile::Textfile(Page& page, std::string path, std::chrono::milliseconds every)
    : page_(page), path_(std::move(path)), every_(every), thread_([this] { Run(); }) {}

Textfile::~Textfile() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  if (written_) unlink(path_.c_str());
}

void Textfile::Run() {
  auto next = std::chrono::steady_clock::now();
  for (;;) {
    WriteOnce();
    next = std::max(next + every_, std::chrono::steady_clock::now());
    MutexLock lock(mutex_);
    while (!ending_ && changed_.WaitUntil(mutex_, next)) {
    }
    if (ending_) return;
  }
}

void Textfile::WriteOnce() {
  const absl::Status status = ReplaceFile(path_, *page_.Get());
  written_ |= status.ok();
  if (status.ok() == !failed_) return;
  failed_ = !status.ok();
  if (!failed_) {
    return log::Write(spdlog::level::info, absl::StrCat("metrics: ", path_, " is written again"),
                      {});
  }
  log::Fields fields;
  if (const auto detail = DetailOf(status)) fields.Errno(detail->errno_value());
  log::Write(spdlog::level::err,
             absl::StrCat("metrics: ", status.message(),
                          "; it is tried again, and said again only after it has worked"),
             fields);
}

}  // namespace mrd::host
