// systemd's part in the life of the service, for daemons that tests start: the sockets of its
// units, $NOTIFY_SOCKET, and the store of descriptors that outlives each run.
#ifndef MRD_TESTS_E2E_SERVICE_MANAGER_H_
#define MRD_TESTS_E2E_SERVICE_MANAGER_H_

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/unique_fd.h"
#include "tests/e2e/process.h"
#include "tests/host/notify_receiver.h"
#include "tests/host/temporary_dir.h"

namespace mrd::e2e {

// Descriptors and their names, in their order.
using NamedFds = std::vector<std::pair<std::string, UniqueFd>>;

// A duplicate that is none of the numbers at which a program is passed descriptors.
UniqueFd OutOfTheWay(const UniqueFd& fd);
// The sockets of mrd's units: in `dir` and its admins' directory, which are made.
NamedFds MakeSockets(const std::string& dir);
// A program that is passed these, as sd_listen_fds(3) has it. REQUIRES: they are out of the way,
// and live until it is started.
ProcessOptions Activated(const NamedFds& fds, std::vector<std::string> argv);

// Runs daemons one after the other, on faked verbs whose kernel outlives them.
class ServiceManager {
 public:
  // `store`: how many descriptors it keeps.
  explicit ServiceManager(size_t store);
  ~ServiceManager();

  // With the sockets and what is in the store; waits until it is ready. REQUIRES: none runs.
  void Start(const std::string& program);
  // SIGTERM or SIGKILL, and waits for its end.
  void End(int signal);

  const std::string& dir() const { return run_; }  // Of the sockets.
  std::string Log() const { return ReadFile(dir_ / "log"); }
  std::vector<std::string> Stored();
  // A duplicate; empty where there is none of this name.
  UniqueFd Stored(const std::string& name);

 private:
  // Reads what has been sent.
  void Receive();
  void Take(const std::string& message, std::vector<UniqueFd> fds);

  const size_t limit_;
  host::TemporaryDir dir_;
  const std::string run_ = dir_ / "mrd";
  const NamedFds sockets_;
  host::NotifyReceiver receiver_{dir_ / "notify"};
  std::optional<Process> daemon_;
  std::mutex mutex_;  // Guards what follows; held while a message is read and taken.
  std::multimap<std::string, UniqueFd> store_;
  int ready_ = 0;
  const UniqueFd stop_;
  std::thread thread_;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_SERVICE_MANAGER_H_
