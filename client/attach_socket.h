// The attach socket as a carrier of packets: connecting, and messages of attach.proto with
// descriptors or credentials beside them. It knows no protocol; attach_connection.h does.
#ifndef MRD_CLIENT_ATTACH_SOCKET_H_
#define MRD_CLIENT_ATTACH_SOCKET_H_

#include <chrono>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/unique_fd.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::internal {

// Packets of either direction (attach.proto).
inline constexpr size_t kMaxPacketBytes = 4096;

// Connects to the SOCK_SEQPACKET socket at `path` (`admin`: the admin socket). Sending on the
// result blocks for at most `send_timeout`. Errors name the path, the cause and what to do
// (connect_error.h).
absl::StatusOr<UniqueFd> ConnectAttachSocket(const std::string& path, bool admin,
                                             std::chrono::milliseconds send_timeout,
                                             bool names = true);

// How long sending blocks at most, from now on. 0 or an errno.
int SetSendTimeout(int socket, std::chrono::milliseconds send_timeout);

// Sends one packet with `fds` beside it. 0 or an errno: EAGAIN where the daemon did not read for
// send_timeout, EPIPE or ECONNRESET where it has hung up.
int SendPacket(int socket, const v1::ClientPacket& packet, std::span<const int> fds);

// Sends one packet with SCM_CREDENTIALS of this process: the kernel vouches for them.
int SendPacketWithCredentials(int socket, const v1::ClientPacket& packet);

enum class Received {
  kPacket,
  kNothing,    // None waiting.
  kHangUp,     // The daemon closed the connection.
  kMalformed,  // Not a DaemonPacket, or longer than one may be.
};

// Takes one waiting packet; never blocks.
Received ReceivePacket(int socket, v1::DaemonPacket* packet);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ATTACH_SOCKET_H_
