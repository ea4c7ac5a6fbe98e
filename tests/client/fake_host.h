// A host whose daemon can be restarted, with a store that keeps sessions or without one: a
// FakeDaemon and FakeServices that come and go in one directory.
#ifndef MRD_TESTS_CLIENT_FAKE_HOST_H_
#define MRD_TESTS_CLIENT_FAKE_HOST_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "mrd/v1/attach.pb.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/fake_services.h"

namespace mrd::testing {

class FakeHost final {
 public:
  // Its daemon is up. Whose services answer as `set` says, in each of its lives.
  explicit FakeHost(bool store, std::function<void(FakeServices&)> set = nullptr);
  ~FakeHost();
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  const std::string& dir() const { return daemon_.dir(); }
  FakeServices& services() { return *services_; }

  // As a daemon that is killed.
  void Down();
  void Up();
  void Restart() { Down(), Up(); }
  // A store has lost all sessions.
  void Forget();

  // To whoever is attached.
  void Tell(v1::AttachEvent event);
  // Hangs up on whoever is attached, and goes on.
  void HangUp();

  // What was said on the attach socket, in all lives: the tokens of hellos, and buffers passed, as
  // ids and inodes.
  std::vector<std::string> hellos();
  std::vector<std::pair<uint64_t, ino_t>> passed();

  // Of each new session: the token. Session ids count from 1.
  static std::string TokenOf(uint64_t session_id);

  // Refuses new sessions with that, where it is set; guarded by itself.
  void Refuse(std::optional<absl::Status> why);
  // Hangs up on a session as soon as it is welcomed.
  std::atomic<bool> drop_at_once = false;

 private:
  void Serve(int socket);

  const bool store_;
  const std::function<void(FakeServices&)> set_;
  std::mutex mutex_;  // Guards what follows, up to the daemon.
  std::vector<std::string> hellos_;
  std::vector<std::pair<uint64_t, ino_t>> passed_;
  uint64_t sessions_ = 0;
  std::vector<std::string> known_;  // Tokens.
  std::optional<absl::Status> refusal_;
  int socket_ = -1;
  uint64_t sequence_ = 0;
  FakeDaemon daemon_;
  std::unique_ptr<FakeServices> services_;
};

// Asks for 20 s.
bool Soon(const std::function<bool()>& condition);

// Grants every range under lease ids that are never used again, for as long as it is asked for,
// with lkey and rkey made of the lease id, on device "fake0", in `generation`.
absl::Status GrantFresh(uint64_t generation, const v1::RegisterRequest& request,
                        v1::RegisterResponse* response);

}  // namespace mrd::testing

#endif  // MRD_TESTS_CLIENT_FAKE_HOST_H_
