// Region: a registered range of a buffer (MR in verbs), and the lease on it. Made by
// Client::Register and its short forms.
//
// A Region owns its lease: destroying it deregisters (best effort, waiting for the daemon), after
// which the device reaches the range no more and peers that use its rkey get a remote access error.
// While the daemon is being restarted that is not waited for, and done when it is back. It keeps
// the buffer's memory mapped and the session alive.
//
// Lease and keys may change while the daemon is restarted: a session that was lost and restored has
// another lease on the same range, with other keys; connections made after a restart need keys of
// their own, which are added. AttachOptions::on_rekeyed tells of either. What is read here is what
// holds at that moment.
//
// Threads: const members may be called at once from several; the others, moving and destroying may
// not overlap with anything on the same Region.
#ifndef MRD_CLIENT_REGION_H_
#define MRD_CLIENT_REGION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/buffer.h"
#include "client/region_key.h"
#include "mrd/v1/attach.pb.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/registration.pb.h"

namespace mrd {

class Endpoint;

namespace internal {
class RegionState;
}

// What to register: bytes of a buffer. REQUIRES: the buffer outlives the call.
struct Range {
  Range(const Buffer& whole) : buffer(&whole), offset(0), length(whole.size()) {}
  Range(const Buffer& b, uint64_t from, uint64_t bytes) : buffer(&b), offset(from), length(bytes) {}

  const Buffer* buffer;
  uint64_t offset;  // From Buffer::data().
  uint64_t length;  // At least 1; offset + length at most Buffer::mapped_size().
};

struct RegisterOptions {
  // Where: each range on each of these. None: on the first active device.
  std::vector<std::string> devices = {};
  bool all_devices = false;  // On every device of the daemon; `devices` must be empty.
  // What the device may do: a preset named for rdma_reg_msgs(3), rdma_reg_read(3),
  // rdma_reg_write(3), or single flags of ibv_reg_mr(3), or both together.
  v1::Access::Preset preset = v1::Access::PRESET_UNSPECIFIED;
  std::vector<v1::AccessFlag> flags = {};
  // The protection domain: one that Client::OpenDomain opened. Empty: the session's private one on
  // each device, where no other session's keys serve.
  std::string domain = {};
  // The regions end when their leases were not renewed for so long; see AttachOptions::renew. 0:
  // they last as long as the session. Not negative; the operator's bounds may change it:
  // Region::ttl().
  std::chrono::nanoseconds ttl{0};
  // For the whole call, retries included; after it the daemon stops and ends what it has pinned. 0:
  // AttachOptions::call_timeout.
  std::chrono::milliseconds timeout{0};
  // Called on a thread of the library, about five times a second, while a call of at least 1 GiB
  // over all its devices is under way. False: the call is cancelled, and returns CANCELLED with
  // nothing registered. Not called any more when the call has returned.
  std::function<bool(const v1::AttachEvent::Progress&)> on_progress = {};
  // Has the daemon close its descriptors of these buffers with the call, as Buffer::Release does.
  bool release_after = false;
  // For connections made since the last restart of the daemon and from now on only: in the newest
  // generation of each device. Else the region is also registered, and booked once more, in those
  // of before in which a connection of the session lies, which reach it then; where a device's
  // driver cannot do that the call is refused (UNSUPPORTED).
  bool newest_only = false;
};

class Region final {
 public:
  // No region: lease_id() is 0.
  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  explicit operator bool() const { return state_ != nullptr; }

  // The range in this process, which is also the remote address that peers use. Never changes.
  uint64_t addr() const { return addr_; }
  void* data() const { return reinterpret_cast<void*>(addr_); }
  uint64_t length() const { return length_; }

  // Never used again, over restarts of the daemon too. 0: no region.
  uint64_t lease_id() const;

  // How long it lasts from one renewal to the next; 0: as long as the session. When it has lapsed
  // (AttachEvent LAPSED), or ended otherwise, this object does not know, and Deregister() says
  // LEASE_UNKNOWN.
  std::chrono::nanoseconds ttl() const;

  // All of them, in the order of RegisterOptions::devices; of one device the newest generation
  // first: after a restart of the daemon a region may have keys for the connections made before and
  // for those made since.
  std::vector<RegionKey> keys() const;

  // The newest on `device`; nothing where it is not registered there.
  std::optional<RegionKey> key(std::string_view device) const;
  // In that generation of it.
  std::optional<RegionKey> KeyIn(std::string_view device, uint64_t generation) const;
  // What the peer of that connection reaches it by; nothing where it does not.
  std::optional<RegionKey> KeyFor(const Endpoint& endpoint) const;

  // Of the first device, in the newest generation that it has keys in there: for connections made
  // from now on. 0 for no region. For one connection, KeyFor(). They take no lock.
  uint32_t lkey() const;
  uint32_t rkey() const;

  // Ends the lease. Afterwards this is no region; so it is where the lease had ended before, for
  // which it returns LEASE_UNKNOWN. On other errors it stays, and the call can be repeated. For
  // many regions Client::Deregister takes one call.
  absl::Status Deregister();

 private:
  friend class Client;

  // The lease has ended.
  void Clear();
  // Deregisters, and is no region afterwards whatever comes of it.
  void Leave();

  std::shared_ptr<internal::BufferState> buffer_;
  std::shared_ptr<internal::RegionState> state_;
  uint64_t addr_ = 0;
  uint64_t length_ = 0;
};

}  // namespace mrd

#endif  // MRD_CLIENT_REGION_H_
