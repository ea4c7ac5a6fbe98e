#include "client/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

namespace mrd::internal {
namespace {

// A "unix:" target is parsed as a URI: what means something there is percent-encoded.
std::string UnixTarget(const std::string& path) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string target = "unix:";
  for (const unsigned char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '/' || c == '.' || c == '-' || c == '_' || c == '~';
    if (plain) {
      target += static_cast<char>(c);
    } else {
      target += {'%', kHex[c >> 4], kHex[c & 15]};
    }
  }
  return target;
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket_path) {
  grpc::ChannelArguments args;
  // Else all channels of the process to one path share a connection: one session's trouble would be
  // another's.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Else the path becomes the :authority, escaped in a way that servers refuse.
  args.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  // Rpc repeats what may be repeated; gRPC's own retries would only copy each message.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Bandwidth probing pings the daemon in the middle of calls that last microseconds.
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  // A connection to a Unix socket succeeds or fails at once: no need to pause for gRPC's seconds.
  // (Not GRPC_ARG_MIN_RECONNECT_BACKOFF_MS: that is the time an attempt may take, on a busy machine
  // too.)
  // After a restart of the daemon ConnectNow() begins anew: what it may find missing still is
  // there a moment later.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // The daemon bounds what it answers; ten thousand leases on many devices exceed gRPC's 4 MiB.
  args.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(UnixTarget(socket_path), grpc::InsecureChannelCredentials(),
                                   args);
}

void ConnectNow(grpc::Channel& channel) {
  grpc::experimental::ChannelResetConnectionBackoff(&channel);
  channel.GetState(/*try_to_connect=*/true);
}

}  // namespace mrd::internal
