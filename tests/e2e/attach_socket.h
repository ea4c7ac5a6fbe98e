// The attach socket by hand: any packet, any descriptors, any credentials. No code of the client
// library's, so that a test can send what the library never would.
#ifndef MRD_TESTS_E2E_ATTACH_SOCKET_H_
#define MRD_TESTS_E2E_ATTACH_SOCKET_H_

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/unique_fd.h"
#include "mrd/v1/attach.pb.h"
#include "mrd/v1/error.pb.h"
#include "tests/e2e/common.h"

namespace mrd::e2e {

// A connection to the Unix socket at this path.
UniqueFd Connect(const std::string& path, int type);

class AttachSocket {
 public:
  explicit AttachSocket(const std::string& path) : fd_(Connect(path, SOCK_SEQPACKET)) {}
  explicit AttachSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // False: the daemon has hung up.
  bool Send(const v1::ClientPacket& packet, const std::vector<int>& fds = {},
            std::optional<ucred> credentials = {}) const;
  bool SendBytes(const std::string& bytes, const std::vector<int>& fds = {},
                 std::optional<ucred> credentials = {}) const;
  bool SendHello(const std::string& name = "test", const std::vector<int>& fds = {}) const;
  bool SendAnswer(const std::string& nonce, std::optional<ucred> credentials = {}) const;
  bool SendBuffers(const std::vector<uint64_t>& ids, const std::vector<int>& fds) const;

  // The next packet; nothing: a hang-up, or none came in time.
  std::optional<v1::DaemonPacket> Receive(milliseconds within = kPatience) const;
  // Whether the daemon hangs up; packets before that are dropped.
  bool HangsUp(milliseconds within = kPatience) const;
  // The reason of a refusal that comes before the hang-up.
  v1::Reason ReceiveRefusal(milliseconds within = kPatience) const;

  int fd() const { return fd_.get(); }
  void Close() { fd_.reset(); }

 private:
  // Waits for a packet; false: none in time. Empty bytes: hang-up.
  bool ReceiveBytes(Clock::time_point deadline, std::string* bytes) const;

  UniqueFd fd_;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_ATTACH_SOCKET_H_
