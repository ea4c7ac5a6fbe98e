#include "daemon/broker/open_ledger.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/ledger/version.h"
#include "spdlog/spdlog.h"

namespace mrd::broker {
namespace {

using ledger::Slots;

constexpr uint64_t kMostCrashedAdoptions = 3;
// Of any end: what hangs there is killed by somebody, and that is to end some time. An adoption
// takes milliseconds: who kills the daemon again and again does not hit so many in a row.
constexpr uint64_t kMostUnfinishedAdoptions = 20;

absl::StatusOr<std::unique_ptr<Slots>> NewLedger(ledger::Store& store) {
  auto slots = Slots::Create();
  if (!slots.ok()) return slots;
  if (auto added = store.Add(ledger::kFdName, (*slots)->fd()); !added.ok()) return added;
  return slots;
}

// From another version.
void TakeOver(Slots& slots) {
  const uint32_t version = slots.version();
  if (version == ledger::kThisVersion.number) return;
  spdlog::info(
      "the ledger is of version {}, this daemon of version {}: what it does not know there it "
      "leaves as it is",
      version, ledger::kThisVersion.number);
  slots.TakeOver();
  // Who goes back from a version that crashes is not to lose what that one could not take over.
  slots.SetCounter(Slots::kCrashedAdoptions, 0);
  slots.SetCounter(Slots::kUnfinishedAdoptions, 0);
}

}  // namespace

void CloseAll(StoredFds& fds, ledger::Store& store) {
  for (const auto& [name, fd] : fds) store.Remove(name);
  fds.clear();
}

absl::StatusOr<std::unique_ptr<Slots>> OpenLedger(StoredFds& fds, ledger::Store& store) {
  const auto close_all = [&](absl::string_view why) {
    if (fds.empty()) return;
    spdlog::error(
        "nothing of the run before is taken over: {}; {} descriptors of it are closed, which ends "
        "its sessions, regions and connections",
        std::string(why), fds.size());
    CloseAll(fds, store);
  };
  if (fds.count(ledger::kFdName) != 1) {
    close_all(fds.count(ledger::kFdName) == 0 ? "there is no ledger" : "there are two ledgers");
    return NewLedger(store);
  }
  const auto found = fds.find(ledger::kFdName);
  auto slots = Slots::Open(std::move(found->second));  // Its name stays there for close_all.
  if (slots.ok()) TakeOver(**slots);
  std::string why;
  if (!slots.ok()) {
    why = std::string(slots.status().message());
  } else if ((*slots)->counter(Slots::kCrashedAdoptions) >= kMostCrashedAdoptions) {
    why = absl::StrCat(kMostCrashedAdoptions, " starts in a row have crashed at that");
  } else if ((*slots)->counter(Slots::kUnfinishedAdoptions) >= kMostUnfinishedAdoptions) {
    why = absl::StrCat(kMostUnfinishedAdoptions, " adoptions in a row have not come to an end");
  }
  if (why.empty()) {
    fds.erase(found);
    return slots;
  }
  slots = absl::UnknownError("");  // Its memory goes before the new one's comes.
  close_all(why);
  return NewLedger(store);
}

}  // namespace mrd::broker
