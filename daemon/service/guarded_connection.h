// Puts a FrameGuard before gRPC: the connections that are handed to it are read through one.
#ifndef MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_
#define MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_

#include <cstdint>
#include <functional>

namespace mrd::service {

// Told once, from any thread, what was too much.
using OnAbuse = std::function<void(const char* what)>;

// From now on whoever calls recvmsg(2) on this connected stream socket gets what passes a guard.
// When something does not, the peer is told so (GOAWAY), the socket is shut down, and reading fails
// with ECONNRESET. The guard ends with the socket; its entry stays until the number of the
// descriptor is used again. False: the socket cannot be told from a later one of that number, and
// is to be closed. Thread-safe; to be called before gRPC has the descriptor.
//
// gRPC 1.51 makes its own endpoint of a descriptor, without a place for a filter, and a relay
// before it would cost each call two hops between threads. So this program has a recvmsg and a
// sendmsg of its own, which the dynamic linker gives to gRPC as well; for all other sockets they do
// what the kernel's do.
bool Guard(int connection, uint32_t most_streams, OnAbuse on_abuse);

// Whether other libraries of this program get its recvmsg and sendmsg.
bool GuardsWork();

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_
