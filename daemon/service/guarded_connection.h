// Puts a FrameGuard before gRPC: the connections that are handed to it are read through one.
//
// gRPC 1.51 makes its own endpoint of a descriptor, without a place for a filter, and a relay
// before it would cost each call two hops between threads. So this program has a recvmsg and a
// sendmsg of its own, which the dynamic linker gives to gRPC as well; for all other sockets they do
// what the kernel's do. All of it is thread-safe.
#ifndef MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_
#define MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "daemon/service/frame_guard.h"
#include "daemon/unique_fd.h"

namespace mrd::service {

// Whose a connection is, and who is told of it, from any thread.
struct Client {
  uint32_t uid;
  // Once, when it is ended for what its client did.
  std::function<void(const char* what)> on_abuse;
  // Of each descriptor that the client sends, which nobody asked for. Its close may hang.
  std::function<void(UniqueFd)> on_descriptor;
};

// From now on whoever calls recvmsg(2) on this connected stream socket gets what passes a guard.
// When something does not, the peer is told so (GOAWAY), the socket is shut down, and reading fails
// with ECONNRESET. False: the socket cannot be guarded, and is to be closed. To be called before
// gRPC has the descriptor.
bool Guard(int connection, const FrameLimits& limits, Client client);

// It is over: its calls count no more. What it has sent is guarded until gRPC has let go of it.
// `connection`: any descriptor of the socket.
void SetOver(int connection);

// Forgets connections that have been over for a while. Called now and then.
void ForgetOver();

// Ends a guarded connection, by what grpc::ServerContext::peer() calls it ("fd:17"), over which a
// call has come at that time. A younger one is another's, which has got the number since.
void EndPeer(const std::string& peer, std::chrono::steady_clock::time_point call, const char* what);

// Whether other libraries of this program get its recvmsg and sendmsg.
bool GuardsWork();

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_GUARDED_CONNECTION_H_
