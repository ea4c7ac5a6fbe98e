// One packet of a SOCK_SEQPACKET connection with what came along: descriptors and the sender's
// credentials.
#ifndef MRD_DAEMON_IPC_PACKET_H_
#define MRD_DAEMON_IPC_PACKET_H_

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/unique_fd.h"

namespace mrd::ipc {

inline constexpr size_t kMostPacketBytes = 4096;
inline constexpr size_t kMostPacketFds = 64;

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;  // Untrusted: their close may block.
  std::optional<ucred> credentials;
};

enum class Received {
  kPacket,
  kNothing,    // No packet waits.
  kHangUp,     // The peer has gone, or the socket failed.
  kMalformed,  // Too long, too many descriptors, or some were lost; `packet->fds` holds those that
               // came.
};

// Never blocks.
Received Receive(int socket, Packet* packet);

// Never blocks, never raises SIGPIPE. False: the packet was not sent.
bool Send(int socket, absl::string_view bytes);

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_PACKET_H_
