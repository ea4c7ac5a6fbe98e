// Matcher of policy.h.
#include <algorithm>
#include <optional>
#include <string_view>

#include "daemon/broker/policy/glob.h"
#include "daemon/broker/policy/policy.h"

namespace mrd::policy {
namespace {

template <typename Ids, typename Ranges>
IdSet SetOf(const Ids& ids, const Ranges& ranges, bool any) {
  IdSet set;
  for (const uint32_t id : ids) set.Add(id);
  for (const v1::IdRange& range : ranges) set.AddRange(range.first(), range.last());
  if (any) set.AddAll();
  return set;
}

}  // namespace

Matcher::Matcher(const v1::Rule& rule)
    : any_uid_(rule.uid().empty() && rule.uid_range().empty()),
      any_gid_(rule.gid().empty() && rule.gid_range().empty()),
      uids_(SetOf(rule.uid(), rule.uid_range(), any_uid_)),
      gids_(SetOf(rule.gid(), rule.gid_range(), any_gid_)),
      cgroups_(rule.cgroup().begin(), rule.cgroup().end()) {
  // What was refused to anybody must not be had by showing no uid: only a grant is for those meant.
  if (rule.deny() && any_uid_) uids_.Add(kOverflowId);
  for (const v1::IdRange& range : rule.uid_range()) {
    if (rule.deny() && range.first() <= kOverflowId && kOverflowId <= range.last()) {
      uids_.Add(kOverflowId);
    }
  }
  uids_.Seal();
  gids_.Seal();
  std::sort(cgroups_.begin(), cgroups_.end());
}

bool Matcher::Matches(const Subject& subject, std::string* cgroup) const {
  if (!uids_.Contains(subject.uid)) return false;
  if (!any_gid_ && std::none_of(subject.gids.begin(), subject.gids.end(),
                                [this](uint32_t gid) { return gids_.Contains(gid); })) {
    return false;
  }
  if (cgroups_.empty()) return true;
  // The shortest: a pattern that describes more of the path must not give its cgroups limits of
  // their own beside those of another pattern that has them all.
  std::optional<std::string_view> shortest;
  for (const std::string& glob : cgroups_) {
    const auto matched = MatchedPath(glob, subject.cgroup);
    if (matched && (!shortest || matched->size() < shortest->size())) shortest = matched;
  }
  if (shortest) *cgroup = std::string(*shortest);
  return shortest.has_value();
}

bool Matcher::Covers(const Matcher& other) const {
  if (!uids_.Covers(other.uids_)) return false;
  if (!any_gid_ && (other.any_gid_ || !gids_.Covers(other.gids_))) return false;
  if (cgroups_.empty()) return true;
  if (other.cgroups_.empty()) return false;
  return std::all_of(
      other.cgroups_.begin(), other.cgroups_.end(), [this](const std::string& narrow) {
        // Mostly it is the same, or none: each rule is looked at with each of the others.
        if (std::binary_search(cgroups_.begin(), cgroups_.end(), narrow)) return true;
        return std::any_of(cgroups_.begin(), cgroups_.end(),
                           [&](const std::string& wide) { return PathCovers(wide, narrow); });
      });
}

bool Matcher::SameAs(const Matcher& other) const {
  return uids_ == other.uids_ && any_gid_ == other.any_gid_ && gids_ == other.gids_ &&
         cgroups_ == other.cgroups_;
}

}  // namespace mrd::policy
