#include "client/mrctl/top_view.h"

#include <algorithm>
#include <vector>

#include "client/mrctl/admin.h"
#include "client/mrctl/session_text.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"
#include "daemon/broker/policy/text.h"

namespace mrctl {
namespace {

constexpr char kReverse[] = "\x1b[7m";
constexpr char kBold[] = "\x1b[1m";
constexpr char kPlain[] = "\x1b[0m";
constexpr char kKeys[] =
    "b bytes r regions c calls n renews l lapses u unclaimed a age  i turn  q quit";

std::string Plural(uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string Summary(const TopModel& model, int64_t now) {
  const auto& status = model.sample().status();
  const auto& totals = status.totals();
  return mrd::policy::Printable(status.fabric()) + ", up " +
         FormatShortAge(now - status.start_time().seconds()) + ": " +
         Plural(totals.sessions(), "session") + ", " + Plural(totals.regions(), "region") + ", " +
         FormatSize(totals.pinned_bytes()) + ", " + FormatRate(model.calls_per_second()) +
         " calls/s, " + Plural(model.new_lapses(), "lapse");
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

std::vector<std::string> SessionLines(const TopModel& model, const TopLook& look, int64_t now,
                                      uint64_t own) {
  // The column by which they are sorted is marked, in no more columns than its heading has.
  const auto heading = [&](const char* text, TopOrder order) {
    return std::string(">") + (look.order == order ? "*" : "") + text;
  };
  Table table({">SESSION", ">PID", ">UID", heading("PINNED", TopOrder::kBytes),
               heading("REGIONS", TopOrder::kRegions), heading("CALLS/S", TopOrder::kCalls),
               heading("REN/S", TopOrder::kRenewals), heading("LAPSES", TopOrder::kLapses),
               heading("UNCL", TopOrder::kUnclaimed), heading("AGE", TopOrder::kAge), "WHO"});
  for (const auto& each : model.sample().sessions()) {
    const auto& session = each.session();
    table.Add({std::to_string(session.session_id()), PidOf(session), std::to_string(session.uid()),
               FormatSize(session.pinned_bytes()), std::to_string(session.regions()),
               FormatRate(each.calls_per_second()), FormatRate(each.renewals_per_second()),
               std::to_string(session.lapses()), std::to_string(session.unclaimed_buffers()),
               FormatShortAge(now - session.attached_time().seconds()), WhoOf(session, own)});
  }
  return Lines(table.Text(look.columns, /*gap=*/1));
}

}  // namespace

std::string DrawTop(const TopModel& model, const TopLook& look, int64_t now, uint64_t own) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text, const char* style) {
    const std::string cut = Cut(text, look.columns);
    lines.push_back(look.color && *style != '\0' ? style + cut + kPlain : cut);
  };
  add(Summary(model, now), "");
  if (!look.trouble.empty()) add(look.trouble, kReverse);
  if (model.sample().status().has_drain()) {
    add(DrainText(model.sample().status().drain(), now), kBold);
  }
  add("", "");
  const std::vector<std::string> sessions = SessionLines(model, look, now, own);
  add(sessions.front(), kReverse);
  size_t shown = sessions.size() - 1;
  if (look.rows > 0) {
    const size_t taken = lines.size() + 1;  // The line of keys.
    const size_t room = look.rows > taken ? look.rows - taken : 0;
    // One line less where it says how many are not shown.
    if (shown > room) shown = room > 0 ? room - 1 : 0;
  }
  for (size_t i = 1; i <= shown; ++i) add(sessions[i], "");
  const size_t hidden = sessions.size() - 1 - shown;
  if (hidden > 0) add("... and " + std::to_string(hidden) + " more", "");
  if (look.rows > 0) {
    while (lines.size() + 1 < look.rows) lines.emplace_back();
    add(kKeys, kBold);
    if (lines.size() > look.rows) lines.resize(look.rows);
  }
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  if (look.rows > 0) text.pop_back();
  return text;
}

}  // namespace mrctl
