// What a Buffer and the regions on it share: the memory, and whether the daemon has its descriptor.
#ifndef MRD_CLIENT_BUFFER_STATE_H_
#define MRD_CLIENT_BUFFER_STATE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "client/session.h"
#include "client/shared_memory.h"

namespace mrd::internal {

// Thread-safe. The destructor asks the daemon to let go, best effort, then unmaps and closes.
class BufferState final {
 public:
  // `file_offset` is where memory.data() lies in the object, `size` what the user may use of it.
  BufferState(std::shared_ptr<Session> session, SharedMemory memory, uint64_t file_offset,
              uint64_t size)
      : session_(std::move(session)),
        memory_(std::move(memory)),
        file_offset_(file_offset),
        size_(size) {}
  ~BufferState();
  BufferState(const BufferState&) = delete;
  BufferState& operator=(const BufferState&) = delete;

  const std::shared_ptr<Session>& session() const { return session_; }
  const SharedMemory& memory() const { return memory_; }
  uint64_t file_offset() const { return file_offset_; }
  uint64_t size() const { return size_; }

  // The id under which it was passed last; 0: it was not, or has been released since.
  uint64_t id() const { return id_.load(std::memory_order_acquire); }

  // The daemon has let go: the next use passes the descriptor anew, under another id.
  void Forget();

  // Asks the daemon to let go. Regions on it stay.
  absl::Status Release();

  // Passes those of `buffers` that the daemon does not have in this epoch (session_state.h), one
  // that was passed in an epoch before under the id that it had; none where the session may not
  // hold so many (QUOTA_BUFFERS). UNAVAILABLE without a reason: the epoch is over. After an error
  // the daemon has some of them, which know it: a further try passes the others. REQUIRES: all of
  // `session`.
  static absl::Status PassAll(Session& session, uint64_t epoch,
                              std::span<BufferState* const> buffers);

 private:
  bool PassedIn(uint64_t epoch) const {
    return epoch_.load(std::memory_order_acquire) == epoch && id() != 0;
  }

  const std::shared_ptr<Session> session_;
  const SharedMemory memory_;
  const uint64_t file_offset_;
  const uint64_t size_;
  std::atomic<uint64_t> id_ = 0;
  std::atomic<uint64_t> epoch_ = 0;  // In which it was passed last.
};

// Buffers that the daemon gets for one call, under ids that nobody else sees: whoever uses one of
// them meanwhile passes it for himself. For one thread. The destructor asks the daemon to let go,
// best effort.
class LentBuffers final {
 public:
  explicit LentBuffers(Session& session) : session_(session) {}
  ~LentBuffers();
  LentBuffers(const LentBuffers&) = delete;
  LentBuffers& operator=(const LentBuffers&) = delete;

  // Before Pass; one that was added already is not added again. It outlives this.
  void Add(const BufferState* buffer);
  // Passes all of them, as BufferState::PassAll does.
  absl::Status Pass(uint64_t epoch);
  // 0: it was not added.
  uint64_t IdOf(const BufferState* buffer) const;

 private:
  struct Loan {
    uint64_t id;
    uint64_t epoch;  // In which it was passed last.
  };
  Session& session_;
  std::map<const BufferState*, Loan> loans_;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_BUFFER_STATE_H_
