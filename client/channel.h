// The gRPC channel of one session.
#ifndef MRD_CLIENT_CHANNEL_H_
#define MRD_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace mrd::internal {

// A channel over the Unix socket at `socket_path`, with a connection of its own, which is made by
// the first call.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket_path);

// Tries to connect at once, and not after the pause that earlier failures have made.
void ConnectNow(grpc::Channel& channel);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_CHANNEL_H_
