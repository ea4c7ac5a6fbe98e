#include "client/buffer_state.h"

#include <algorithm>
#include <string>
#include <vector>

#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

// The daemon refuses one too many, and ends a session that goes on passing: it is not to come so
// far.
absl::Status CheckRoomFor(size_t more, const Session& session) {
  const uint64_t limit = session.welcome().limits().max_buffers();
  const uint64_t held = session.buffers_passed();
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

}  // namespace

BufferState::~BufferState() {
  if (session_->state().Check().ok()) Release().IgnoreError();
}

absl::Status BufferState::Release() {
  if (absl::Status usable = session_->state().Check(); !usable.ok()) return usable;
  const uint64_t id = id_.exchange(0, std::memory_order_acq_rel);
  if (id == 0) return absl::OkStatus();
  v1::ReleaseBuffersRequest request;
  request.add_buffer_ids(id);
  absl::Status released = session_->rpc().ReleaseBuffers(request, session_->call_timeout());
  // After another error the daemon may have it still.
  if (released.ok() || ReasonOf(released) == v1::BUFFER_UNKNOWN) session_->CountReleased();
  return released;
}

void BufferState::Forget() {
  if (id_.exchange(0, std::memory_order_acq_rel) != 0) session_->CountReleased();
}

absl::Status BufferState::PassAll(Session& session, std::span<BufferState* const> buffers) {
  const auto missing = [](const BufferState* buffer) { return buffer->id() == 0; };
  if (std::none_of(buffers.begin(), buffers.end(), missing)) return absl::OkStatus();

  // One passer at a time: an id is visible to other calls only once its packet is under way.
  MutexLock lock(&session.pass_mutex());
  std::vector<BufferState*> pass;
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(pass), missing);
  std::sort(pass.begin(), pass.end());
  pass.erase(std::unique(pass.begin(), pass.end()), pass.end());
  if (absl::Status room = CheckRoomFor(pass.size(), session); !room.ok()) return room;
  std::vector<uint64_t> ids;
  std::vector<int> fds;
  for (const BufferState* buffer : pass) {
    ids.push_back(session.NewBufferId());
    fds.push_back(buffer->memory().fd());
  }
  size_t passed;
  absl::Status status = session.connection().PassBuffers(ids, fds, &passed);
  // Before an id can be seen: who releases it takes it off the count again.
  session.CountPassed(passed);
  for (size_t i = 0; i < passed; ++i) pass[i]->id_.store(ids[i], std::memory_order_release);
  return status;
}

}  // namespace mrd::internal
