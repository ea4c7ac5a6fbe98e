#include "tests/vm/probe/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/vm/probe/kernel_counts.h"
#include "tests/vm/probe/words.h"

namespace probe {
namespace {

absl::StatusOr<mrd::v1::AttachEvent::EventKind> ParseKind(const std::string& name) {
  mrd::v1::AttachEvent::EventKind kind;
  if (mrd::v1::AttachEvent::EventKind_Parse(name, &kind)) return kind;
  return Misspoken("no kind of event: " + name);
}

}  // namespace

void EventLog::Add(const mrd::v1::AttachEvent& event) {
  // Before all else: what the event says has ended must have ended by now.
  auto regions = KernelRegions();
  const std::lock_guard lock(mutex_);
  entries_.push_back(
      {event.kind(), static_cast<uint64_t>(event.lease_ids_size()), std::move(regions)});
  changed_.notify_all();
}

absl::StatusOr<std::string> EventLog::Take(const std::string& name, uint64_t leases,
                                           std::chrono::milliseconds patience) {
  const auto kind = ParseKind(name);
  if (!kind.ok()) return kind.status();
  const auto wanted = [&](const Entry& entry) { return entry.kind == *kind; };
  uint64_t told = 0;
  std::unique_lock lock(mutex_);
  const bool enough = changed_.wait_for(lock, patience, [&] {
    told = 0;
    for (const Entry& entry : entries_) told += wanted(entry) ? entry.leases : 0;
    return told >= leases && std::any_of(entries_.begin(), entries_.end(), wanted);
  });
  if (!enough) {
    return absl::DeadlineExceededError(absl::StrCat(name, " of ", told, " leases, not ", leases));
  }
  std::string each;
  uint64_t events = 0;
  told = 0;
  for (const Entry& entry : entries_) {
    if (!wanted(entry)) continue;
    if (!entry.regions.ok()) return entry.regions.status();
    told += entry.leases;
    absl::StrAppend(&each, " told", events, "=", told, " regions", events, "=", *entry.regions);
    ++events;
  }
  std::erase_if(entries_, wanted);
  return absl::StrCat("events=", events, " leases=", told, each);
}

absl::StatusOr<std::string> EventLog::Count(const std::string& name) const {
  const auto kind = ParseKind(name);
  if (!kind.ok()) return kind.status();
  const std::lock_guard lock(mutex_);
  return absl::StrCat("events=", std::count_if(entries_.begin(), entries_.end(),
                                               [&](const Entry& e) { return e.kind == *kind; }));
}

}  // namespace probe
