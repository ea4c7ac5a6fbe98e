// A client of mrd that does what it is told, one command at a time. commands.cc says in which
// words.
#ifndef TESTS_VM_PROBE_CLIENT_H_
#define TESTS_VM_PROBE_CLIENT_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/unique_fd.h"
#include "mrd/v1/attach.pb.h"
#include "mrd/v1/error.pb.h"
#include "tests/vm/probe/event_log.h"
#include "tests/vm/probe/memory.h"

namespace probe {

// What answers a command: "key=value key=value", or why not.
using Answer = absl::StatusOr<std::string>;

// Which regions to make: `count` ranges of `length` bytes one after the other, in one call.
struct RegisterRequest {
  std::string name;  // Of them all.
  uint64_t count = 1;
  uint64_t offset = 0;
  uint64_t length = 0;
  mrd::RegisterOptions options;
};

class ProbeClient final {
 public:
  ProbeClient() = default;
  ~ProbeClient();
  ProbeClient(const ProbeClient&) = delete;
  ProbeClient& operator=(const ProbeClient&) = delete;

  // Before all else. The callbacks are set here.
  Answer Attach(mrd::AttachOptions options);
  bool attached() const { return client_.has_value(); }
  Answer Detach();
  Answer AwaitLost();
  // Waits for the next event of this kind about this device: how many leases and endpoints it
  // ended.
  Answer AwaitEvent(const std::string& kind, const std::string& device);
  Answer Status();
  Answer Devices();

  // Buffers, by a name.
  Answer CreateBuffer(const std::string& name, uint64_t size, mrd::Pages pages);
  Answer AdoptMemfd(const std::string& name, const MemfdOptions& options);
  // The daemon is passed `fd` as if it were a buffer of `size` bytes: the library, which would
  // refuse to adopt it, does not know.
  Answer AdoptAnything(const std::string& name, int fd, uint64_t size);
  Answer AdoptDmaBuf(const std::string& name, uint64_t size);
  Answer Drop(const std::string& name);
  Answer Release(const std::string& name);
  Answer Truncate(const std::string& name, uint64_t size);
  Answer PunchHole(const std::string& name, uint64_t offset, uint64_t length);
  Answer Write(const std::string& name, uint64_t offset, const std::string& data);
  // Waits until these bytes are there.
  Answer Expect(const std::string& name, uint64_t offset, const std::string& data);

  Answer Register(const std::string& buffer, const RegisterRequest& request);
  Answer Deregister(const std::string& name);
  Answer Leases();

  // Leases with a ttl (client_leases.cc): those of these names or, with none, all.
  Answer Renew(const std::vector<std::string>& names);
  // See EventLog.
  Answer AwaitEvents(const std::string& kind, uint64_t leases);
  Answer CountEvents(const std::string& kind);
  // Of all sessions, told to admins.
  Answer Totals();

  // Restarts of the daemon (client_survival.cc). The keys of the first region of that name.
  Answer Keys(const std::string& name);
  // All regions get keys in the newest generations.
  Answer AddKeys();
  // Registers and deregisters without pause: how often, and how long the longest pair took.
  Answer RegisterFor(uint64_t seconds, const std::string& device);

  Answer OpenDomain(const std::string& name, const mrd::DomainOptions& options);
  Answer CloseDomain(const std::string& name);
  Answer Domains();

  // Registers and deregisters so many regions, some in one call: ranges, sizes and buffers are
  // chosen by `seed`.
  Answer RunCycles(uint64_t count, uint64_t seed, const std::string& device);

  // Accepts peers until the end and tells each of the first region of that name.
  Answer Listen(const mrd::ListenOptions& options, const std::string& regions);
  Answer Connect(const std::string& address, uint16_t port, const std::string& regions);
  // Waits until so many connections stand, and so many have ended without our doing.
  Answer AwaitConnections(uint64_t connected, uint64_t disconnected);
  Answer Disconnect();

  // A child that holds all descriptors of this process open.
  Answer Sleeper(unsigned seconds);

  // Passes so many descriptors that mrd must refuse, of kinds chosen by `seed`, and tries each.
  Answer BadFds(uint64_t count, uint64_t seed, const std::string& device);

 private:
  struct Memory {
    std::optional<mrd::Buffer> buffer;
    int fd = -1;  // The buffer's, or `own`.
    mrd::internal::UniqueFd own;
    char* data = nullptr;
  };
  struct Lost {
    std::mutex mutex;
    bool lost = false;
    std::list<mrd::v1::AttachEvent> events;  // That nobody has waited for yet.
  };

  absl::StatusOr<Memory*> Find(const std::string& name);
  absl::StatusOr<std::string> Announcement(const std::string& regions, const std::string& device);
  Answer Adopt(const std::string& name, mrd::internal::UniqueFd fd, void* address, uint64_t size);
  void AcceptLoop(const mrd::Listener* listener, const std::string& announcement);
  // The refusal that this kind of descriptor should get.
  absl::StatusOr<mrd::v1::Reason> AddBadBuffer(const std::string& kind);

  Lost lost_;
  EventLog events_;
  std::optional<mrd::Client> client_;
  std::map<std::string, Memory> memory_;
  std::map<std::string, std::vector<mrd::Region>> regions_;
  std::list<mrd::Listener> listeners_;
  std::vector<std::thread> acceptors_;
  std::mutex endpoints_mutex_;
  std::vector<mrd::Endpoint> endpoints_;
};

}  // namespace probe

#endif  // TESTS_VM_PROBE_CLIENT_H_
