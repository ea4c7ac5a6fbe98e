// What the command line says.
#ifndef MRD_DAEMON_OPTIONS_H_
#define MRD_DAEMON_OPTIONS_H_

#include <chrono>
#include <string>

#include "daemon/broker/limits.h"
#include "daemon/host/metrics/textfile.h"
#include "daemon/ipc/socket_dir.h"
#include "daemon/service/server.h"
#include "spdlog/common.h"

namespace mrd {

struct Options {
  ipc::SocketOptions sockets;
  std::string fabric = "verbs";
  std::string config;  // The policy; empty: the default file, which may be missing.
  spdlog::level::level_enum log_level = spdlog::level::info;
  size_t store = 0;  // Descriptors that the service manager keeps over a restart; 0: no store.
  std::string metrics_listen;    // Empty: not served. See ListenSocket.
  std::string metrics_textfile;  // Empty: not written.

  // Not on the command line: what tests set.
  broker::Limits limits;
  service::ServerOptions server;
  bool peer_pidfd = true;
  size_t registrar_threads = 0;  // 0: one a core, at least four.
  std::chrono::milliseconds metrics_textfile_every = host::Textfile::kEvery;
  // For an end in order. A connection that is being made to a host that does not answer may take
  // longer to give up; what else is left then is as much work for the kernel as for the daemon.
  std::chrono::milliseconds most_ending{30000};
};

// Fills `options` from the command line. False: the program ends with *exit_code (after --help,
// --version or an error, which has been printed).
bool ParseOptions(int argc, char** argv, Options* options, int* exit_code);

}  // namespace mrd

#endif  // MRD_DAEMON_OPTIONS_H_
