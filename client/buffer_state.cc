#include "client/buffer_state.h"

#include <algorithm>
#include <vector>

namespace mrd::internal {

BufferState::~BufferState() {
  if (session_->state().Check().ok()) Release().IgnoreError();
}

absl::Status BufferState::Release() {
  if (absl::Status usable = session_->state().Check(); !usable.ok()) return usable;
  const uint64_t id = id_.exchange(0, std::memory_order_acq_rel);
  if (id == 0) return absl::OkStatus();
  v1::ReleaseBuffersRequest request;
  request.add_buffer_ids(id);
  return session_->rpc().ReleaseBuffers(request, session_->call_timeout());
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
  std::vector<uint64_t> ids;
  std::vector<int> fds;
  for (const BufferState* buffer : pass) {
    ids.push_back(session.NewBufferId());
    fds.push_back(buffer->memory().fd());
  }
  if (absl::Status passed = session.connection().PassBuffers(ids, fds); !passed.ok()) return passed;
  for (size_t i = 0; i < pass.size(); ++i) {
    pass[i]->id_.store(ids[i], std::memory_order_release);
  }
  return absl::OkStatus();
}

}  // namespace mrd::internal
