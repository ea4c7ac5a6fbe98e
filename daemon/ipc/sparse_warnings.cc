#include "daemon/ipc/sparse_warnings.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace mrd::ipc {

std::optional<uint64_t> SparseWarnings::Happened(uid_t uid, Clock::time_point now) {
  MutexLock lock(mutex_);
  if (const auto known = by_uid_.find(uid); known != by_uid_.end()) {
    if (now - known->second.warned < kEvery) {
      ++known->second.silent;
      return std::nullopt;
    }
    known->second.warned = now;
    return std::exchange(known->second.silent, 0);
  }
  // What was said so long ago that nothing depends on it goes: uids come and go in containers.
  std::erase_if(by_uid_, [now](const auto& each) {
    return each.second.silent == 0 && now - each.second.warned >= kEvery;
  });
  by_uid_[uid].warned = now;
  return 0;
}

void SparseWarnings::Warn(uid_t uid, const std::string& text, const log::Fields& fields) {
  const auto silent = Happened(uid);
  if (!silent) return;
  if (*silent == 0) {
    log::Write(spdlog::level::warn, text, fields);
  } else {
    log::Write(spdlog::level::warn,
               absl::StrCat(text, " (", *silent, " more since the last warning)"), fields);
  }
}

}  // namespace mrd::ipc
