#include "daemon/broker/registration.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/endpoints.h"
#include "daemon/broker/records.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

using fabric::Bit;

// What a thread that takes calls may do itself.
constexpr uint64_t kSmallBytes = 1 << 20;
constexpr size_t kSmallRegions = 512;

}  // namespace

void Registration::Start(Broker& broker, const SessionRef& session, RegisterSpec spec,
                         RegisterDone done) {
  auto work = Work::Begin(broker, session);
  if (!work.ok()) return done(work.status());
  auto self = std::shared_ptr<Registration>(
      new Registration(broker, *std::move(work), std::move(spec), std::move(done)));
  if (auto shape = self->CheckShape(); !shape.ok()) return self->done_(shape);
  if (self->Repeats()) return;
  // A repeat of what was done before it was drained has been answered above.
  if (auto taken = broker.TakesMore("no new registrations"); !taken.ok()) {
    return self->Finish(taken);
  }
  auto named = broker.JoinedDomain(*session, self->spec_.domain);
  if (!named.ok()) return self->Finish(named.status());
  self->named_ = *std::move(named);
  if (auto found = self->FindBuffers(/*may_block=*/false); !found.ok()) return self->Finish(found);
  if (auto found = self->FindDevices(/*may_block=*/false); !found.ok()) return self->Finish(found);
  self->FindOldDomains();
  const bool domains_made = self->FindDomains();

  uint64_t weight = 0;
  for (const RangeSpec& range : self->spec_.ranges) {
    weight = range.length > UINT64_MAX - weight ? UINT64_MAX : weight + range.length;
  }
  const bool small =
      !self->buffers_.empty() && domains_made && weight <= kSmallBytes && self->Small();
  self->may_wait_ = !small;
  auto& registrar = broker.registrar();
  const auto task = [self] { self->Run(); };
  const absl::Status taken = small ? registrar.RunSmall(session->owner(), task)
                                   : registrar.Submit(session->owner(), weight, task);
  if (!taken.ok()) self->Finish(taken);
}

bool Registration::Repeats() {
  if (spec_.request_id.empty()) return false;
  std::shared_ptr<const LeaseViews> answer;
  absl::Status refusal;
  {
    MutexLock lock(session_.mutex);
    RequestRecord* const record = session_.requests.Find(spec_.request_id);
    if (session_.ending) {
      refusal = SessionUnknown();  // Its leases are the session's no more, and there is no answer.
    } else if (!record) {
      record_ = session_.requests.Begin(spec_.request_id, spec_.fingerprint);
      return false;
    } else if (record->fingerprint != spec_.fingerprint) {
      refusal = MakeError(v1::REQUEST_ID_REUSED,
                          "this request_id was used by the session with other parameters",
                          {.advice = "Use a fresh request_id for each new request"});
    } else if (record->answered) {
      answer = session_.AnswerOf(*record);
    } else if (std::distance(record->waiters.begin(), record->waiters.end()) >=
               RequestLog::kMostWaiters) {
      refusal = MakeError(v1::BUSY, "the first call with this request_id is under way still",
                          {.limit_name = "repeats of a request that wait for it",
                           .limit = RequestLog::kMostWaiters,
                           .used = RequestLog::kMostWaiters,
                           .advice = "Repeat it later"});
    } else {
      record->waiters.push_front({std::move(done_), spec_.wanted});
      return true;
    }
  }
  if (answer && answer->size() > kSmallRegions) {
    // So many take milliseconds to be written down: not on a thread that takes calls.
    const absl::Status taken = broker_.registrar().Submit(
        session_.owner(), 0, [self = shared_from_this(), answer] { self->done_(answer); });
    if (!taken.ok()) done_(taken);
  } else if (answer) {
    done_(std::move(answer));
  } else {
    done_(std::move(refusal));
  }
  return true;
}

absl::Status Registration::FindBuffers(bool may_block) {
  buffers_.reserve(spec_.ranges.size());
  for (const bool drained : {false, true}) {
    buffers_.clear();
    uint64_t unknown = 0;
    {
      MutexLock lock(session_.mutex);
      uint64_t last_id = 0;
      for (const RangeSpec& range : spec_.ranges) {
        if (range.buffer_id == last_id && !buffers_.empty()) {
          buffers_.push_back(buffers_.back());
          continue;
        }
        const auto found = session_.buffers.find(range.buffer_id);
        if (found == session_.buffers.end()) {
          unknown = range.buffer_id;
          break;
        }
        found->second.claimed = true;
        if (!found->second.buffer)
          return OfRange(spec_.ranges, buffers_.size(), found->second.refusal);
        buffers_.push_back(found->second.buffer);
        last_id = range.buffer_id;
      }
    }
    if (buffers_.size() == spec_.ranges.size()) break;
    if (!may_block) {
      buffers_.clear();
      break;
    }
    if (drained) {
      return MakeError(v1::BUFFER_UNKNOWN, absl::StrCat("no buffer ", unknown, " in this session"),
                       {.advice = "Pass the buffer on the attach socket before naming it"});
    }
    session_.link->Drain();
  }
  return absl::OkStatus();
}

absl::Status Registration::FindDevices(bool may_block) {
  devices_ = spec_.devices;
  if (!devices_.empty()) return absl::OkStatus();
  const auto catalog = may_block ? broker_.devices().Read() : broker_.devices().Known();
  DeviceRef fallback;
  DeviceRef refused;
  for (const DeviceRef& device : catalog) {
    // Those that the policy allows: a call that names none is not to fail by the others.
    if (!terms_->Allows(device->name)) {
      refused = device;
      continue;
    }
    if (!fallback) fallback = device;
    if (spec_.all_devices || device->active) devices_.push_back(device->name);
    if (!spec_.all_devices && !devices_.empty()) break;
  }
  if (!may_block) {
    // A link that went down or came up meanwhile is known to the calls after this one.
    broker_.devices().Renew();
    if (devices_.empty()) return absl::OkStatus();
  }
  if (devices_.empty() && fallback) devices_.push_back(fallback->name);
  if (!devices_.empty()) return absl::OkStatus();
  if (refused) return terms_->CheckDevice(refused->name);
  return MakeError(v1::DEVICE_UNKNOWN, "the daemon has no device",
                   {.advice = "ListDevices (mrctl devices) shows those there are"});
}

bool Registration::FindDomains() {
  if (devices_.empty()) return false;
  for (const std::string& name : devices_) {
    auto kept = domain_set().Kept(name);
    if (!kept) {
      domains_.clear();
      return false;
    }
    domains_.push_back(*std::move(kept));
    AddOldDomains(name);
  }
  return true;
}

void Registration::FindOldDomains() {
  if (spec_.newest_only || !domain_set().HasAdopted()) return;
  old_domains_.clear();
  for (const std::string& name : devices_) {
    for (SessionDomain& old : domain_set().Adopted(name)) {
      MutexLock lock(session_.mutex);
      const bool used = std::any_of(session_.endpoints.begin(), session_.endpoints.end(),
                                    [&old](const auto& each) {
                                      const Endpoint& endpoint = *each.second;
                                      return endpoint.info.device == old.device->name &&
                                             endpoint.info.generation == old.device->generation &&
                                             endpoint.state == v1::Endpoint::CONNECTED;
                                    });
      if (used) old_domains_.push_back(std::move(old));
    }
  }
}

void Registration::AddOldDomains(const std::string& device) {
  for (const SessionDomain& old : old_domains_) {
    if (old.device->name == device) domains_.push_back(old);
  }
}

absl::Status Registration::MakeDomains() {
  for (const std::string& name : devices_) {
    auto domain = broker_.DomainFor(session_, named_, name);
    if (!domain.ok()) return domain.status();
    domains_.push_back(*std::move(domain));
    AddOldDomains(name);
  }
  return absl::OkStatus();
}

bool Registration::Small() const {
  if (spec_.ranges.size() * domains_.size() > kSmallRegions) return false;
  const auto any_address = [](const SessionDomain& domain) { return domain.device->any_address; };
  const bool anywhere = std::any_of(domains_.begin(), domains_.end(), any_address);
  const bool in_place = !std::all_of(domains_.begin(), domains_.end(), any_address);
  for (size_t i = 0; i < spec_.ranges.size(); ++i) {
    const RangeSpec& range = spec_.ranges[i];
    const memory::Buffer& buffer = *buffers_[i];
    if (buffer.dma_buf()) return false;
    if (in_place && !buffer.IsMappedAt(range.addr, range.offset, range.length)) return false;
    if (i > 0 && buffers_[i] == buffers_[i - 1]) continue;
    if (anywhere && !buffer.IsMapped(range.offset, 1)) return false;
  }
  return true;
}

absl::Status Registration::GoOn() {
  MutexLock lock(session_.mutex);
  return GoOnLocked();
}

absl::Status Registration::GoOnLocked() {
  if (session_.ending) return SessionUnknown();
  const auto waits = [](const std::function<bool()>& wanted) { return !wanted || wanted(); };
  if (waits(spec_.wanted)) return absl::OkStatus();
  if (record_) {
    // A repeat of this call, of a client whose connection broke, may wait for the same answer.
    for (const Waiter& waiter : record_->waiters) {
      if (waits(waiter.wanted)) return absl::OkStatus();
    }
    // One that comes from now on, while this is rolled back, begins anew.
    given_up_ = session_.requests.Refuse(*record_);
    record_ = nullptr;
  }
  return absl::CancelledError("the call was cancelled; nothing is registered");
}

void Registration::Report(Progress progress) {
  progress.request_id = spec_.request_id;
  session_.link->Send({.kind = v1::AttachEvent::PROGRESS, .progress = std::move(progress)});
}

void Registration::Run() {
  const absl::Status made = Make();
  if (!made.ok()) {
    RollBack();
    Finish(made);
  }
}

absl::Status Registration::Make() {
  if (buffers_.empty()) {
    if (auto found = FindBuffers(/*may_block=*/true); !found.ok()) return found;
  }
  if (devices_.empty()) {
    if (auto found = FindDevices(/*may_block=*/true); !found.ok()) return found;
    FindOldDomains();
  }
  // The checks first: a refused call makes no domain.
  if (auto checked = CheckAndBook(); !checked.ok()) return checked;
  if (auto present = CheckPresent(); !present.ok()) return present;
  if (domains_.empty()) {
    if (auto made = MakeDomains(); !made.ok()) return made;
  }
  if (auto pinned = PinAll(); !pinned.ok()) return pinned;
  auto answer = std::make_shared<LeaseViews>();
  answer->reserve(leases_.size());
  for (const auto& lease : leases_) answer->push_back(lease->view);
  return Commit(std::move(answer));
}

absl::Status Registration::PinAll() {
  leases_.reserve(spec_.ranges.size());
  for (size_t i = 0; i < spec_.ranges.size(); ++i) {
    const RangeSpec& range = spec_.ranges[i];
    leases_.push_back(std::make_unique<Lease>());
    Lease& lease = *leases_.back();
    lease.request = record_;
    lease.ttl = ttl_;
    LeaseView& view = lease.view;
    view = {broker_.NextId(),
            range.buffer_id,
            range.offset,
            range.length,
            range.addr,
            spec_.access,
            {}};
    if (named_) view.domain = named_->name;
    if (ttl_.count() > 0) view.remaining = ttl_;
  }
  const auto help = [this] {
    // Without help this thread does it all.
    broker_.registrar()
        .Submit(session_.owner(), 0, [self = shared_from_this()] { self->pinning_.Help(); })
        .IgnoreError();
  };
  return pinning_.Run({.ranges = spec_.ranges,
                       .buffers = buffers_,
                       .domains = domains_,
                       .leases = leases_,
                       .access = spec_.access,
                       .may_wait = may_wait_,
                       .go_on = [this] { return GoOn(); },
                       .report = [this](Progress progress) { Report(std::move(progress)); }},
                      help);
}

absl::Status Registration::Commit(std::shared_ptr<const LeaseViews> answer) {
  Waiters waiters;
  std::vector<BufferSlot> released;
  {
    MutexLock lock(session_.mutex);
    // The last pin may have taken long.
    if (auto go_on = GoOnLocked(); !go_on.ok()) return go_on;
    for (const SessionDomain& used : domains_) {
      // Its end has looked at this session already; else it finds the leases.
      if (broker_.device_watch().IsGone(*used.device)) return DeviceRemoved(used.device->name);
    }
    if (auto written = WriteDown(); !written.ok()) return written;
    const auto call = leases_[0]->written ? leases_[0]->written->call : nullptr;
    for (auto& lease : leases_) session_.PutLease(std::move(lease));
    leases_.clear();
    if (ttl_.count() > 0) broker_.WatchLocked(session_);
    for (const SessionDomain& used : domains_) domain_set().Keep(used);
    if (record_) waiters = session_.requests.Answer(*record_, *answer, call);
    record_ = nullptr;
    if (spec_.release_after) {
      for (const RangeSpec& range : spec_.ranges) {
        const auto found = session_.buffers.find(range.buffer_id);
        if (found == session_.buffers.end()) continue;
        released.push_back(std::move(found->second));
        session_.buffers.erase(found);
      }
    }
  }
  LetGo();
  auto tell = [waiters = std::move(waiters), done = std::move(done_), answer]() mutable {
    for (Waiter& waiter : waiters) waiter.done(answer);
    done(std::move(answer));
  };
  if (released.empty()) {
    tell();
  } else {
    broker_.registrar().SubmitCleanup(session_.owner(),
                                      [self = shared_from_this(), released = std::move(released),
                                       tell = std::move(tell)]() mutable {
                                        released.clear();
                                        tell();
                                      });
  }
  return absl::OkStatus();
}

absl::Status Registration::WriteDown() {
  ledger::Ledger* const ledger = broker_.ledger();
  if (!ledger || !session_.record) return absl::OkStatus();
  // What needs the memory map of this process ends with it.
  if ((spec_.access & Bit(v1::ON_DEMAND)) != 0) return absl::OkStatus();
  auto written = broker::WriteDown(*ledger, session_, leases_, record_, named_.get(),
                                   leases_.size() > 1 ? broker_.NextId() : 0);
  if (written.ok()) return written;
  for (auto& lease : leases_) lease->written = nullptr;
  return MakeError(v1::BUSY, absl::StrCat("the leases cannot be written down: ", written.message()),
                   {.advice = "The daemon is short of memory: try again later"});
}

void Registration::LetGo() {
  // One that was released meanwhile ends with its last range here, which may take long.
  std::vector<std::shared_ptr<memory::Buffer>> last;
  for (auto& buffer : buffers_) {
    if (buffer.use_count() == 1) last.push_back(std::move(buffer));
    buffer = nullptr;
  }
  buffers_.clear();
  if (!last.empty()) {
    broker_.registrar().SubmitCleanup(session_.owner(),
                                      [self = shared_from_this(), last = std::move(last)] {});
  }
  domains_.clear();
  old_domains_.clear();
  named_ = nullptr;
}

void Registration::RollBack() {
  pinning_.Unmap();
  std::vector<std::unique_ptr<Lease>> stuck;
  Amounts kept;
  absl::Status why;
  for (auto& lease : leases_) {
    const auto missing = std::remove_if(lease->regions.begin(), lease->regions.end(),
                                        [](const HeldRegion& held) { return !held.region; });
    lease->regions.erase(missing, lease->regions.end());
    if (EndRegions(*lease, &why)) continue;
    kept += lease->booked();  // A region that will not end keeps its pages booked.
    stuck.push_back(std::move(lease));
  }
  leases_.clear();
  booked_ -= kept;
  broker_.books().Release(*session_.holder, booked_);
  {
    MutexLock lock(session_.mutex);
    session_.held -= booked_;
  }
  booked_ = {};
  broker_.KeepStuck(session_, std::move(stuck), why);
}

void Registration::Finish(RegisterResult result) {
  Waiters waiters;
  {
    MutexLock lock(session_.mutex);
    waiters = record_ ? session_.requests.Refuse(*record_) : std::move(given_up_);
    record_ = nullptr;
  }
  LetGo();
  for (Waiter& waiter : waiters) waiter.done(result);
  done_(std::move(result));
}

}  // namespace mrd::broker
