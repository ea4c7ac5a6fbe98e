// Puts a FrameGuard before gRPC: the connections that are handed to it are read through one.
#ifndef MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_
#define MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_

#include <functional>

namespace mrd::service {

// Told once, from any thread, what was too much.
using OnTooMuch = std::function<void(const char* what)>;

// From now on whoever calls recvmsg(2) on this connected stream socket gets what passes a guard.
// When something does not, the peer is told so (GOAWAY), the socket is shut down, and reading fails
// with ECONNRESET. Ends with the socket: nobody needs to take it back. Thread-safe; to be called
// before gRPC has the descriptor.
//
// gRPC 1.51 makes its own endpoint of a descriptor, without a place for a filter, and a relay
// before it would cost each call two hops between threads. So this program has a recvmsg and a
// sendmsg of its own, which the dynamic linker gives to gRPC as well; for all other sockets they do
// what the kernel's do.
void Guard(int connection, OnTooMuch on_too_much);

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_
