#include "client/buffer_state.h"

#include <algorithm>
#include <string>
#include <vector>

#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

// The daemon refuses one too many, and ends a session that goes on passing: it is not to come so
// far.
absl::Status CheckRoomFor(size_t more, uint64_t held, const Session& session) {
  const uint64_t limit = session.welcome()->limits().max_buffers();
  if (limit == 0 || held + more <= limit) return absl::OkStatus();
  return MakeError(v1::QUOTA_BUFFERS,
                   "cannot pass " + std::to_string(more) +
                       " more buffers to the daemon, which holds " + std::to_string(held) +
                       " of this session and no more than " + std::to_string(limit),
                   {.limit_name = "buffers of the session",
                    .limit = limit,
                    .used = held,
                    .advice = "Register several ranges of one larger buffer, or release buffers "
                              "(release_after does it at once)."});
}

// REQUIRES: it holds none of these in this epoch. After an error the daemon has `sent` of them.
absl::Status PassLocked(Session& session, uint64_t epoch, const std::vector<uint64_t>& ids,
                        const std::vector<int>& fds, size_t* sent)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.pass_mutex()) {
  *sent = 0;
  Session::Passed& passed = session.passed();
  if (epoch < passed.epoch) return absl::UnavailableError("the daemon was restarted meanwhile");
  if (epoch > passed.epoch) passed = {epoch, 0};
  if (absl::Status room = CheckRoomFor(ids.size(), passed.count, session); !room.ok()) return room;
  absl::Status status = session.connection().PassBuffers(epoch, ids, fds, sent);
  // Before an id can be seen: who releases it takes it off the count again.
  passed.count += *sent;
  return status;
}

void CountReleased(Session& session, uint64_t epoch) {
  MutexLock lock(&session.pass_mutex());
  Session::Passed& passed = session.passed();
  if (passed.epoch == epoch && passed.count > 0) --passed.count;
}

absl::Status ReleaseId(Session& session, uint64_t epoch, uint64_t id) {
  v1::ReleaseBuffersRequest request;
  request.add_buffer_ids(id);
  absl::Status released = session.rpc().ReleaseBuffers(request, session.call_timeout());
  const bool unknown = ReasonOf(released) == v1::BUFFER_UNKNOWN;
  // After another error the daemon may have it still.
  if (released.ok() || unknown) CountReleased(session, epoch);
  return unknown && !session.state().Current(epoch) ? absl::OkStatus() : released;
}

}  // namespace

BufferState::~BufferState() {
  if (session_->state().Check().ok()) Release().IgnoreError();
}

absl::Status BufferState::Release() {
  if (absl::Status usable = session_->state().Check(); !usable.ok()) return usable;
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  const uint64_t id = id_.exchange(0, std::memory_order_acq_rel);
  // A daemon that was restarted has none of those passed before.
  if (id == 0 || !session_->state().Current(epoch)) return absl::OkStatus();
  return ReleaseId(*session_, epoch, id);
}

void BufferState::Forget() {
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  if (id_.exchange(0, std::memory_order_acq_rel) != 0) CountReleased(*session_, epoch);
}

absl::Status BufferState::PassAll(Session& session, uint64_t epoch,
                                  std::span<BufferState* const> buffers) {
  const auto missing = [epoch](const BufferState* buffer) { return !buffer->PassedIn(epoch); };
  if (std::none_of(buffers.begin(), buffers.end(), missing)) return absl::OkStatus();

  // One passer at a time: others see that one was passed only once its packet is under way.
  MutexLock lock(&session.pass_mutex());
  std::vector<BufferState*> pass;
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(pass), missing);
  std::sort(pass.begin(), pass.end());
  pass.erase(std::unique(pass.begin(), pass.end()), pass.end());
  std::vector<uint64_t> ids;
  std::vector<int> fds;
  for (const BufferState* buffer : pass) {
    // A call that is repeated names the id that it named before.
    ids.push_back(buffer->id() != 0 ? buffer->id() : session.NewBufferId());
    fds.push_back(buffer->memory().fd());
  }
  size_t sent;
  absl::Status status = PassLocked(session, epoch, ids, fds, &sent);
  for (size_t i = 0; i < sent; ++i) {
    pass[i]->epoch_.store(epoch, std::memory_order_release);
    pass[i]->id_.store(ids[i], std::memory_order_release);
  }
  return status;
}

LentBuffers::~LentBuffers() {
  for (const auto& [buffer, loan] : loans_) {
    // A daemon that was restarted has none of those passed before.
    if (session_.state().Current(loan.epoch)) {
      ReleaseId(session_, loan.epoch, loan.id).IgnoreError();
    }
  }
}

void LentBuffers::Add(const BufferState* buffer) {
  if (loans_.count(buffer) == 0) loans_[buffer] = {session_.NewBufferId(), 0};
}

absl::Status LentBuffers::Pass(uint64_t epoch) {
  std::vector<Loan*> pass;
  std::vector<uint64_t> ids;
  std::vector<int> fds;
  for (auto& [buffer, loan] : loans_) {
    if (loan.epoch == epoch) continue;
    pass.push_back(&loan);
    ids.push_back(loan.id);
    fds.push_back(buffer->memory().fd());
  }
  if (ids.empty()) return absl::OkStatus();
  size_t sent;
  MutexLock lock(&session_.pass_mutex());
  absl::Status status = PassLocked(session_, epoch, ids, fds, &sent);
  for (size_t i = 0; i < sent; ++i) pass[i]->epoch = epoch;
  return status;
}

uint64_t LentBuffers::IdOf(const BufferState* buffer) const {
  const auto found = loans_.find(buffer);
  return found == loans_.end() ? 0 : found->second.id;
}

}  // namespace mrd::internal
