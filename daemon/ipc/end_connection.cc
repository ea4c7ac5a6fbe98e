#include "daemon/ipc/end_connection.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace mrd::ipc {
namespace {

// More than net.core.wmem_max lets a peer have under way unless an admin has raised it: all that a
// peer without descriptors has sent goes in one read. A read of gRPC's in between finds all or
// nothing of it, not a later part.
constexpr size_t kAtOnce = 256 << 10;

// Of packets or, false, a stream.
bool HasPackets(int socket) {
  int type = SOCK_STREAM;
  socklen_t length = sizeof type;
  getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length);
  return type == SOCK_SEQPACKET;
}

enum class Next { kEnd, kPlain, kDescriptors };

// Reads once, into `bytes`, and tells what it was. Not recvmsg(3), which in this program looks at
// what is read (service/guarded_connection.h).
Next Read(int socket, void* bytes, size_t length, int flags) {
  iovec data{bytes, length};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  // With every packet, an empty one too, its sender's credentials come; with the end nothing. No
  // part of a stream is empty. There is no room for descriptors: this very thread drops them.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  if (HasPackets(socket)) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  // An error (ECONNRESET) is told once, and hides nothing that waits.
  for (int tries = 0; tries < 3; ++tries) {
    const long read = syscall(SYS_recvmsg, socket, &message, flags | MSG_DONTWAIT);
    if (read < 0) continue;
    if ((message.msg_flags & MSG_CTRUNC) != 0) return Next::kDescriptors;
    return read > 0 || message.msg_controllen > 0 ? Next::kPlain : Next::kEnd;
  }
  return Next::kEnd;
}

// May take for ever.
void DropAll(int socket) {
  const auto bytes = std::make_unique_for_overwrite<char[]>(kAtOnce);
  while (Read(socket, bytes.get(), kAtOnce, 0) != Next::kEnd) {
  }
}

// Drops what came without descriptors. False: some come next. REQUIRES: it is shut down, and nobody
// else reads.
bool DropPlain(int socket) {
  char bytes[4096];
  for (;;) {
    const Next next = Read(socket, bytes, sizeof bytes, MSG_PEEK);
    if (next != Next::kPlain) return next == Next::kEnd;
    Read(socket, bytes, sizeof bytes, 0);  // The same again.
  }
}

}  // namespace

void EndConnection(UniqueFd connection, uid_t uid, memory::Disposer& disposer, Readers readers) {
  const int socket = connection.get();
  shutdown(socket, SHUT_RDWR);
  const int on = 1;
  if (HasPackets(socket)) setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  // Else a read would drop a byte that was sent out of band, with its descriptors, unseen.
  setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
  bool plain;
  if (readers == Readers::kNone) {
    plain = DropPlain(socket);
  } else {
    int waiting = 0;
    plain = ioctl(socket, FIONREAD, &waiting) == 0 && waiting == 0;
  }
  if (!plain) disposer.Close(uid, std::move(connection), DropAll);
}

}  // namespace mrd::ipc
