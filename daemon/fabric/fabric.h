// A fabric drives devices: it registers memory in protection domains, and connects endpoints. It
// knows no session, no lease and no quota; whoever calls it has checked what the caller may do. Two
// of them: verbs/ (libibverbs, librdmacm) and soft/ (in this process, no hardware).
//
// Thread safety: every method may be called from any thread. Those marked "may block" go to the
// kernel and must not be called from the main loop. Errors are made by MakeError (mrd/v1/status.h)
// with the reason, errno, limit and advice; they are final for callers.
#ifndef MRD_DAEMON_FABRIC_FABRIC_H_
#define MRD_DAEMON_FABRIC_FABRIC_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/fabric/access.h"
#include "mrd/v1/device.pb.h"

namespace mrd::fabric {

using Deadline = std::chrono::steady_clock::time_point;

struct DeviceInfo {
  std::string name;
  v1::Device::Transport transport = v1::Device::TRANSPORT_UNSPECIFIED;
  bool active = false;                 // A port is up.
  std::vector<std::string> addresses;  // IP addresses of its ports.
  bool endpoints = false;              // rdma_cm knows it.
  // Regions may lie at any iova. If not, RegionSpec::va must be the client's own address.
  bool any_address = true;
  bool dma_buf = false;
  uint64_t max_region_bytes = 0;
  uint64_t max_regions = 0;
  AccessMask access = 0;    // What it can do.
  uint64_t generation = 0;  // Of its opening.
  std::chrono::system_clock::time_point opened;
};

struct RegionSpec {
  uint64_t iova = 0;    // The address that SGEs and peers use.
  uint64_t length = 0;  // Bytes, at least 1.
  AccessMask access = 0;
  // Where this process has it mapped, MAP_SHARED and writable; agrees with iova modulo the page
  // size. Used during the registration only: the region stands without the mapping. Null for a
  // dma-buf.
  void* va = nullptr;
  int dma_buf_fd = -1;          // ibv_reg_dmabuf_mr(3); else -1.
  uint64_t dma_buf_offset = 0;  // Bytes into the dma-buf.
};

// A registered range. The owner deregisters it before it destroys it, and destroys it before its
// domain.
class Region {
 public:
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  uint32_t lkey() const { return lkey_; }
  uint32_t rkey() const { return rkey_; }
  // Of the kernel's object; 0 where there is none.
  virtual uint32_t handle() const { return 0; }

  // OK: the device reaches this memory no more (a device that has gone away reaches nothing). May
  // block. On an error the region stands, and the call may be repeated.
  virtual absl::Status Deregister() = 0;

 protected:
  Region(uint32_t lkey, uint32_t rkey) : lkey_(lkey), rkey_(rkey) {}

 private:
  const uint32_t lkey_;
  const uint32_t rkey_;
};

// A protection domain on one device. Its end (destructor, may block) comes after that of its
// regions and connections; the shared_ptrs that they hold see to it.
class Domain {
 public:
  virtual ~Domain() = default;

  // Checks what the device can do (length, access, address), then pins and registers. May block for
  // as long as pinning takes: seconds for many gigabytes. Errors: INVALID_LENGTH, ACCESS_INVALID,
  // ACCESS_UNSUPPORTED, ADDRESS_UNUSABLE, DEVICE_LIMIT, MEMLOCK, DEVICE_REMOVED, UNSUPPORTED,
  // DEVICE_ERROR.
  virtual absl::StatusOr<std::unique_ptr<Region>> Register(const RegionSpec& spec) = 0;

  // The device that it is on, which may have been opened anew since somebody looked.
  virtual std::string device() const = 0;
  virtual uint64_t generation() const = 0;
  virtual uint32_t handle() const { return 0; }
};

struct ConnectionInfo {
  std::string device;       // Empty: listening on every device.
  uint64_t generation = 0;  // Of the device; 0 where that is empty.
  std::string local_address;
  uint32_t local_port = 0;
  std::string peer_address;
  uint32_t peer_port = 0;
  uint32_t qp_num = 0;
};

// The kernel's objects of a connection, in the context of its device. `fd`: of its rdma_cm id, the
// connection's own; -1 where it has none, and cannot be adopted.
struct ConnectionHandles {
  uint32_t domain = 0;
  uint32_t queue_pair = 0;
  uint32_t completion_queue = 0;
  int fd = -1;
};

// An established connection and its queue pair. Its end (destructor, may block) disconnects:
// afterwards the peer reaches nothing over it. The `left` callback of its making is not running and
// not called again once the destructor returns.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual const ConnectionInfo& info() const = 0;
  // What a later process can adopt it by.
  virtual ConnectionHandles handles() const { return {}; }
};

struct Established {
  std::unique_ptr<Connection> connection;
  std::string private_data;  // The peer's.
};

// Called exactly once, from a thread of the fabric or of the caller; must not block.
using EstablishedCallback = absl::AnyInvocable<void(absl::StatusOr<Established>)>;

// What a connection needs of its owner. Callbacks come from a thread of the fabric and must not
// block, but for `domain`, which may go to the kernel.
struct ConnectionSpec {
  std::string private_data;  // For the peer. Accept: at most 196 bytes; connect: at most 56.
  Deadline deadline;         // After it the attempt fails with WAIT_ENDED.
  // The domain for the queue pair, on the device that the connection turned out to use.
  std::function<absl::StatusOr<std::shared_ptr<Domain>>(const std::string& device)> domain;
  // Whether the attempt is still wanted; asked just before a peer is answered. May be empty:
  // always.
  std::function<bool()> wanted;
  // What its owner booked for the attempt. Let go of before `done` is told of a failure, or later
  // where the kernel works on beyond the deadline and cannot be stopped: rdma_connect on iWARP to a
  // host that does not answer, an iWARP handshake that the peer does not finish. Its destructor
  // runs on any thread and must not block. May be null.
  std::shared_ptr<void> held;
  // The peer disconnected, or the connection failed; `error` tells which. At most once, after
  // `done` was given the connection. The connection still has to be destroyed.
  std::function<void(bool error)> left;
  // An event of the connection is about to be taken from the kernel, where nobody finds it again;
  // false: it was taken, and was not the connection's end. As `left`, and never after it. May be
  // empty.
  std::function<void(bool waits)> event = {};
};

// For fabrics: tells that an attempt has come to nothing, and nothing is left of it.
inline void FailAttempt(ConnectionSpec& spec, EstablishedCallback& done, absl::Status status) {
  spec.held = nullptr;
  done(std::move(status));
}

// A listening endpoint. Its end (destructor, may block) answers waiting Accepts with
// ENDPOINT_UNKNOWN and rejects requests that nobody took; connections that were accepted stand. An
// Accept whose handshake is under way gets the same answer, maybe a moment later.
class Listener {
 public:
  virtual ~Listener() = default;
  // local_address and local_port are set; device where the address is that of one.
  virtual const ConnectionInfo& info() const = 0;

  // Takes the next connection request, in the order of the calls. `done` gets CONNECTION_FAILED
  // when that request came to nothing. Does not block.
  virtual void Accept(ConnectionSpec spec, EstablishedCallback done) = 0;
};

// What a look at the devices has found.
struct DeviceChanges {
  // As they were at their opening. They give no domain, region or connection any more; attempts to
  // connect and to accept on them have failed with DEVICE_REMOVED, or will in a moment. The fabric
  // closes each as soon as the last domain and connection on it has ended: the kernel's removal of
  // a device may wait for that.
  std::vector<DeviceInfo> removed;
  std::vector<DeviceInfo> added;    // Can be used.
  std::vector<std::string> failed;  // Of those removed: that had a fatal error, by name.
};

// Attempts to connect at one time, those included whose wait has ended while the kernel works on
// them: a fabric refuses more with BUSY. Whoever calls it divides them among its clients.
inline constexpr uint64_t kMostConnects = 256;

// What keeps an opening of a device alive beyond this process: whoever holds a duplicate of `fd`,
// which is the fabric's.
struct Keepable {
  int fd = -1;
  uint32_t driver_id = 0;
};

// An opening of a device by an earlier process, of which only the descriptor is left: what that
// process made there goes on, and this one ends it. Shared by what was adopted there; with the last
// of it the context ends. Thread-safe; every method may block.
class AdoptedDevice {
 public:
  enum class Object { kDomain, kRegion, kQueuePair, kCompletionQueue };
  struct RegionFacts {
    uint32_t lkey = 0;
    uint32_t rkey = 0;
    uint64_t length = 0;
    uint64_t iova = 0;
  };

  virtual ~AdoptedDevice() = default;
  virtual const DeviceInfo& info() const = 0;

  // False: the device was unplugged. Some drivers let what was made there go on, and the kernel's
  // removal of the device waits for its end.
  virtual bool IsThere() = 0;

  // Those that the kernel has there. `all` is false where there may be more than it tells. Errors:
  // DEVICE_REMOVED, and then nothing is left of it; DEVICE_ERROR.
  struct Handles {
    std::vector<uint32_t> handles;
    bool all = true;
  };
  virtual absl::StatusOr<Handles> List(Object object) = 0;
  // Errors: as List; NOT_FOUND without a reason: there is no such region.
  virtual absl::StatusOr<RegionFacts> Query(uint32_t region) = 0;
  // Ends what nobody adopts. OK where it has ended already.
  virtual absl::Status End(Object object, uint32_t handle) = 0;

  // The kernel has these, and nobody has adopted them. Registering in the domain may be refused
  // with UNSUPPORTED: the driver does not let another process do it.
  virtual std::shared_ptr<Domain> AdoptDomain(uint32_t handle) = 0;
  virtual std::unique_ptr<Region> AdoptRegion(uint32_t handle, uint32_t lkey, uint32_t rkey) = 0;
  // `fd`: a duplicate of handles.fd. `left` as in ConnectionSpec, at once where the peer has gone
  // meanwhile. REQUIRES: the connection ends before the fabric does.
  virtual std::unique_ptr<Connection> AdoptConnection(const ConnectionHandles& handles,
                                                      std::shared_ptr<Domain> domain,
                                                      ConnectionInfo info,
                                                      std::function<void(bool error)> left) = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual std::string name() const = 0;  // "verbs", "soft"

  // By name. The state of ports and addresses is read afresh. May block.
  virtual std::vector<DeviceInfo> Devices() = 0;

  // Has `changed` called when Refresh or Devices would tell something new: a device is failing, or
  // a port went up or down. Devices that come or go unnoticed by the fabric itself are not among
  // it: the kernel's uevents tell. From any thread of the fabric; must not block. Once, before the
  // fabric is used by several threads.
  virtual void Watch(std::function<void()> changed) = 0;

  // Looks which devices there are, opens those that are new, and gives up those that have gone or
  // failed. May block. One call at a time.
  virtual DeviceChanges Refresh() = 0;

  // Errors: that opening of a device cannot outlive this process.
  virtual absl::StatusOr<Keepable> Keep(const DeviceInfo& device) {
    (void)device;
    return absl::UnimplementedError("its fabric cannot do that");
  }
  // Takes over an opening of an earlier process. `kept.fd` becomes the device's; `closed` is called
  // just before it is closed. `info`: as at the opening.
  virtual std::shared_ptr<AdoptedDevice> Adopt(DeviceInfo info, Keepable kept,
                                               std::function<void()> closed) {
    (void)info, (void)kept, (void)closed;
    return nullptr;
  }

  // A new protection domain on the device of that name. May block. Errors: DEVICE_UNKNOWN (it was
  // never here), DEVICE_REMOVED, DEVICE_LIMIT, DEVICE_ERROR.
  virtual absl::StatusOr<std::shared_ptr<Domain>> CreateDomain(const std::string& device) = 0;

  // May block. Errors: ADDRESS_INVALID, CONNECTION_FAILED (the address is in use: errno says so),
  // DEVICE_ERROR, UNSUPPORTED.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           uint32_t port, int backlog) = 0;

  // Does not block. `source` may be empty. Errors besides those of making a connection: BUSY.
  virtual void Connect(const std::string& address, uint32_t port, const std::string& source,
                       ConnectionSpec spec, EstablishedCallback done) = 0;
};

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_FABRIC_H_
