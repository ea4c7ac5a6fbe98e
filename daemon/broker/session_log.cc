#include "daemon/broker/session_log.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/broker/session.h"

namespace mrd::broker {

void SessionLog::Share::Fill(double most, Clock::time_point now) {
  const std::chrono::duration<double> passed = now - filled;
  const std::chrono::duration<double> whole = kPer;
  left = std::min(most, left + most * (passed / whole));
  filled = now;
}

std::optional<uint64_t> SessionLog::Admit(uint64_t session_id, uint32_t uid,
                                          Clock::time_point now) {
  MutexLock lock(mutex_);
  Share& of_uid = uids_.try_emplace(uid, Share{kOfUid, now, 0, now}).first->second;
  of_uid.Fill(kOfUid, now);
  // Before there is an entry of the session: sessions come and go as their user likes.
  if (of_uid.left < 1) {
    ++of_uid.left_out;
    return std::nullopt;
  }
  Share& share = sessions_.try_emplace(session_id, OfSession{uid, {kOfSession, now, 0, now}})
                     .first->second.share;
  share.Fill(kOfSession, now);
  if (share.left < 1) {
    ++share.left_out;
    return std::nullopt;
  }
  share.left -= 1;
  of_uid.left -= 1;
  share.told = of_uid.told = now;
  return std::exchange(share.left_out, 0);
}

void SessionLog::Write(spdlog::level::level_enum level, uint64_t session_id, const Identity& who,
                       std::string_view text, const log::Fields& fields, Clock::time_point now) {
  if (!log::Wanted(level)) return;
  log::Fields all;
  all.Session(session_id).Uid(who.uid).Pid(who.pid).Add(fields);
  if (level <= spdlog::level::debug) return log::Write(level, text, all);
  const auto left_out = Admit(session_id, who.uid, now);
  if (!left_out) return observer_.LinesLeftOut(1);
  if (*left_out == 0) return log::Write(level, text, all);
  all.Add("left_out", std::to_string(*left_out));
  log::Write(level,
             absl::StrCat(absl::string_view(text.data(), text.size()), " (", *left_out,
                          " lines of this session were left out before)"),
             all);
}

void SessionLog::Sweep(Clock::time_point now) {
  std::vector<std::pair<std::string, log::Fields>> lines;
  const auto due = [now](const Share& share) {
    return share.left_out != 0 && now - share.told >= kPer;
  };
  const auto tell = [&](Share& share, log::Fields who, const char* of) {
    who.Add("left_out", std::to_string(share.left_out));
    lines.emplace_back(absl::StrCat(share.left_out, " lines of this ", of, " were left out"),
                       std::move(who));
    share.left_out = 0;
    share.told = now;
  };
  {
    MutexLock lock(mutex_);
    for (auto& [id, entry] : sessions_) {
      entry.share.Fill(kOfSession, now);
      if (due(entry.share)) {
        tell(entry.share, log::Fields().Session(id).Uid(entry.uid), "session");
      }
    }
    for (auto& [uid, share] : uids_) {
      share.Fill(kOfUid, now);
      if (due(share)) tell(share, log::Fields().Uid(uid), "user");
    }
    std::erase_if(sessions_, [](const auto& each) { return each.second.share.quiet(kOfSession); });
    std::erase_if(uids_, [](const auto& each) { return each.second.quiet(kOfUid); });
  }
  for (const auto& [text, fields] : lines) log::Write(spdlog::level::warn, text, fields);
}

}  // namespace mrd::broker
