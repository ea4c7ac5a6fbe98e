#include "daemon/survival.h"

#include <chrono>
#include <string>
#include <utility>

#include "daemon/ipc/peer.h"
#include "spdlog/spdlog.h"

namespace mrd {
namespace {

constexpr std::chrono::milliseconds kSweepEvery{200};

// A hidden pid tells nothing: the time to come back bounds it.
bool Lives(const broker::Identity& who) {
  return who.pid == 0 || who.start_time == 0 || ipc::StartTimeOf(who.pid) == who.start_time;
}

}  // namespace

std::unique_ptr<Survival> Survival::Open(size_t limit, std::vector<host::InheritedFd> fds) {
  std::unique_ptr<Survival> survival(new Survival(limit, host::NamesOf(fds)));
  for (host::InheritedFd& each : fds) {
    survival->fds_.emplace(std::move(each.name), std::move(each.fd));
  }
  auto slots = broker::OpenLedger(survival->fds_, survival->store_);
  if (!slots.ok()) {
    spdlog::error("the end of this process is the end of all sessions: {}",
                  std::string(slots.status().message()));
    return nullptr;
  }
  survival->ledger_ = std::make_unique<broker::ledger::Ledger>(*std::move(slots), survival->store_);
  return survival;
}

uint64_t Survival::first_generation() const {
  return ledger_->slots().counter(broker::ledger::Slots::kGeneration) + 1;
}

void Survival::Adopt(sd_event* loop, broker::Broker& broker) {
  broker_ = &broker;
  broker.SetLedger(*ledger_);
  const auto began = std::chrono::steady_clock::now();
  broker::Adoption adoption(broker, *ledger_, std::move(fds_), Lives);
  fds_.clear();
  const absl::Status adopted = adoption.Run();
  // Not before: a removal ends what lies on its device of all sessions that it finds.
  broker.device_watch().Start();
  broker.device_watch().Look();
  if (!adopted.ok()) {
    spdlog::error(
        "{}: nothing of the run before is taken over: its sessions, regions and "
        "connections have ended",
        std::string(adopted.message()));
    return;
  }
  const broker::Adoption::Counts& counts = adoption.counts();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  spdlog::info(
      "of the run before: {} sessions, {} regions and {} endpoints taken over in {} ms; {} "
      "sessions whose process has ended, and {} things in the kernel that nobody had any more, "
      "were ended",
      counts.sessions, counts.regions, counts.endpoints, took.count(), counts.ended_sessions,
      counts.ended_objects);
  if (counts.sessions > 0) {
    sweep_ = ipc::OrDie({loop, kSweepEvery, [this] { Sweep(); }}, "the clock of the awaited");
  }
}

void Survival::Sweep() {
  if (sweeping_->over) return;
  sweep_.SetAgain(kSweepEvery);
  if (sweeping_->now.exchange(true)) return;
  broker_->registrar().SubmitCleanup(
      broker::kDaemonsOwn, [&broker = *broker_, sweeping = sweeping_] {
        sweeping->over = broker.SweepAwaited(Lives, std::chrono::steady_clock::now()) == 0;
        sweeping->now = false;
      });
}

}  // namespace mrd
