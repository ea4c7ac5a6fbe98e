// The end of a connection to a client.
//
// A client may have sent descriptors that nobody has read. Whoever reads past them or closes the
// connection drops them, and the last close of some takes as long as their owner likes: of a TCP
// socket with SO_LINGER, say, whose peer does not read. So no thread that others wait for may close
// a connection in which something waits.
#ifndef MRD_DAEMON_IPC_END_CONNECTION_H_
#define MRD_DAEMON_IPC_END_CONNECTION_H_

#include <sys/types.h>

#include "daemon/memory/disposer.h"
#include "daemon/unique_fd.h"

namespace mrd::ipc {

// Who else reads from it meanwhile. Only of a stream.
enum class Readers { kNone, kOthers };

// Shuts it down for both sides, so that nothing more can be sent, and closes it: here where no
// descriptor waits in it, else on a thread of `disposer`, which first drops what waits. With other
// readers it goes there if anything waits. From then on other descriptors of the connection may be
// closed anywhere. `uid`: the peer's. Thread-safe, and never blocks.
void EndConnection(UniqueFd connection, uid_t uid, memory::Disposer& disposer,
                   Readers readers = Readers::kNone);

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_END_CONNECTION_H_
