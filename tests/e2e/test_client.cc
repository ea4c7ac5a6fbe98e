// A client process on the client library that does what a test tells it on stdin, a line a command,
// and answers each with a line: "ok ..." or the refusal.
//
//   attach | admin        attaches to the daemon in argv[1]
//   buffer BYTES          makes a buffer
//   register N            registers it N times, a page each; answers the lease ids
//   register N MS         the same with a ttl
//   manual                attaches, and renews only what it is told to
//   renew                 all leases; answers the shortest ttl in ms
//   events                answers the events so far: the names of their kinds
//   deregister            all of them
//   connect | hello | pass | reg | extend | dereg
//                         the same by hand, step by step, without waiting for the daemon's answer
//                         to the step
//   session               ok, or what ended the session
//   flood FD SESSIONS EACH in each, passes it until the daemon hangs up, EACH times a packet and
//                         10,000 times at most
//   own_shm               a mount namespace with a /dev/shm of its own
//   shm NAME BYTES        makes POSIX shared memory there and adopts it
//   sleep                 starts `sleep 60`, which inherits every descriptor; answers its pid
//   fork                  starts a child that does nothing and inherits all; answers its pid
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "client/client.h"
#include "mrd/v1/registration.grpc.pb.h"
#include "tests/e2e/raw_client.h"

namespace mrd::e2e {
namespace {

std::string Text(const absl::Status& status) {
  return status.ok() ? "ok" : std::string(status.ToString());
}

// Answers while its call may hang in the daemon, so each call has a thread that nobody waits for.
class StepByStep {
 public:
  explicit StepByStep(const std::string& dir) : dir_(dir) {}

  bool Run(const std::string& step) {
    if (step == "connect") {
      socket_.emplace(dir_ + "/attach.sock");
    } else if (step == "hello") {
      socket_->SendHello("steps");
    } else if (step == "pass") {
      Welcomed();
      socket_->SendBuffers({1}, {memory_.fd()});
    } else if (step == "reg") {
      Call("Register", [this](auto& stub, auto& context) {
        v1::RegisterRequest request = RequestFor(1, memory_.addr(), kPage);
        request.mutable_ttl()->set_seconds(60);
        for (int i = 1; i < 64; ++i) *request.add_ranges() = request.ranges(0);
        v1::RegisterResponse response;
        const auto status = stub.Register(&context, request, &response);
        for (const auto& lease : response.leases()) leases_.push_back(lease.lease_id());
        return status;
      });
    } else if (step == "extend") {
      if (call_.joinable()) call_.join();  // Its leases are what is renewed, and ended.
      Call("RenewLeases", [](auto& stub, auto& context) {
        v1::RenewLeasesResponse response;
        return stub.RenewLeases(&context, {}, &response);
      });
    } else if (step == "dereg") {
      if (call_.joinable()) call_.join();
      Call("Deregister", [this](auto& stub, auto& context) {
        v1::DeregisterRequest request;
        request.mutable_lease_ids()->Add(leases_.begin(), leases_.end());
        v1::DeregisterResponse response;
        return stub.Deregister(&context, request, &response);
      });
    } else {
      return false;
    }
    return true;
  }

 private:
  void Welcomed() {
    if (!token_.empty()) return;
    auto packet = socket_->Receive();
    Require(packet && packet->has_welcome(), "a welcome");
    token_ = packet->welcome().token();
  }
  template <typename Body>
  void Call(const char* name, Body body) {
    Welcomed();
    call_ = std::thread([this, name, body] {
      if (!stub_) stub_ = v1::Registration::NewStub(MakeChannel(dir_));
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.AddMetadata("mrd-session-bin", token_);
      const grpc::Status status = body(*stub_, context);
      Require(status.ok(), name + status.error_message());
    });
  }

  const std::string dir_;
  const Memory memory_{kPage};
  std::optional<AttachSocket> socket_;
  std::string token_;
  std::vector<uint64_t> leases_;
  std::unique_ptr<v1::Registration::Stub> stub_;
  std::thread call_;
};

class TestClient {
 public:
  explicit TestClient(const std::string& dir) : dir_(dir), steps_(dir) {}

  std::string Do(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "attach" || command == "admin" || command == "manual") {
      return Attach(command == "admin", /*renew=*/command != "manual");
    }
    if (command == "renew") return Renew();
    if (command == "events") return Events();
    if (command == "session") return Text(client_->SessionStatus());
    if (command == "buffer") {
      uint64_t bytes = 0;
      words >> bytes;
      return Keep(client_->CreateBuffer(bytes));
    }
    if (command == "register") {
      size_t count = 0;
      int64_t ttl_ms = 0;
      words >> count >> ttl_ms;
      return Register(count, milliseconds(ttl_ms));
    }
    if (command == "deregister") return Text(client_->Deregister(regions_));
    if (command == "own_shm") return OwnShm();
    if (command == "flood") {
      int fd = -1;
      int sessions = 0;
      int each = 0;
      words >> fd >> sessions >> each;
      return Flood(fd, sessions, each);
    }
    if (command == "shm") {
      std::string name;
      uint64_t bytes = 0;
      words >> name >> bytes;
      return Shm(name, bytes);
    }
    if (command == "sleep" || command == "fork") return StartChild(command == "sleep");
    return steps_.Run(command) ? "ok" : "no such command: " + command;
  }

 private:
  std::string Attach(bool admin, bool renew) {
    auto client = Client::Attach({.socket_dir = dir_,
                                  .admin = admin,
                                  .name = "test client",
                                  .renew = renew,
                                  .on_loss = OnLoss::kTell,
                                  .on_event = [this](const v1::AttachEvent& event) {
                                    const std::lock_guard lock(mutex_);
                                    events_ += " " + v1::AttachEvent::EventKind_Name(event.kind());
                                    for (const uint64_t id : event.lease_ids()) {
                                      events_ += " " + std::to_string(id);
                                    }
                                  }});
    if (!client.ok()) return Text(client.status());
    client_ = std::move(*client);
    return "ok " + std::to_string(client_->session_id());
  }

  std::string Keep(absl::StatusOr<Buffer> buffer) {
    if (!buffer.ok()) return Text(buffer.status());
    buffer_ = std::move(*buffer);
    return "ok";
  }

  std::string Renew() {
    const auto shortest = client_->RenewLeases();
    if (!shortest.ok()) return Text(shortest.status());
    if (!*shortest) return "ok none";
    return "ok " + std::to_string(std::chrono::floor<milliseconds>(**shortest).count());
  }

  std::string Events() {
    const std::lock_guard lock(mutex_);
    return "ok" + events_;
  }

  std::string Register(size_t count, milliseconds ttl) {
    std::vector<Range> ranges(count, Range(*buffer_, 0, kPage));
    auto regions = client_->Register({.preset = v1::Access::REG_WRITE, .ttl = ttl}, ranges);
    if (!regions.ok()) return Text(regions.status());
    std::string answer = "ok";
    for (Region& region : *regions) {
      answer += " " + std::to_string(region.lease_id());
      regions_.push_back(std::move(region));
    }
    return answer;
  }

  std::string Flood(int fd, int sessions, int each) const {
    int ended = 0;
    for (int i = 0; i < sessions; ++i) {
      const AttachSocket socket(dir_ + "/attach.sock");
      if (!socket.SendHello() || !socket.Receive()) {
        ++ended;
        continue;
      }
      uint64_t id = 0;
      for (int packet = 0; packet < 10000 / each; ++packet) {
        std::vector<uint64_t> ids;
        for (int k = 0; k < each; ++k) ids.push_back(++id);
        if (!socket.SendBuffers(ids, std::vector<int>(each, fd))) break;
      }
      ended += socket.HangsUp();
    }
    return "ok " + std::to_string(ended) + " sessions ended";
  }

  static std::string OwnShm() {
    // EINVAL: the root of a chroot that is no mount, of which this cannot be said.
    if (unshare(CLONE_NEWNS) < 0 ||
        (mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 && errno != EINVAL) ||
        mount("test", "/dev/shm", "tmpfs", 0, nullptr) < 0) {
      return Text(absl::ErrnoToStatus(errno, "a mount namespace"));
    }
    return "ok";
  }

  std::string Shm(const std::string& name, uint64_t bytes) {
    const UniqueFd fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0) {
      return Text(absl::ErrnoToStatus(errno, "shm_open"));
    }
    return Keep(client_->AdoptBuffer(fd.get()));
  }

  static std::string StartChild(bool sleep) {
    const pid_t pid = fork();
    if (pid == 0) {
      // Every descriptor survives the exec.
      for (int fd = 3; fd < 256; ++fd) fcntl(fd, F_SETFD, 0);
      if (sleep) execlp("sleep", "sleep", "60", nullptr);
      for (;;) pause();
    }
    return "ok " + std::to_string(pid);
  }

  const std::string dir_;
  std::mutex mutex_;  // Guards events_.
  std::string events_;
  StepByStep steps_;
  std::optional<Client> client_;
  std::optional<Buffer> buffer_;
  std::vector<Region> regions_;
};

int Main(int argc, char** argv) {
  if (argc < 2) return 2;  // More of them are for who looks at its command line.
  TestClient client(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << client.Do(line) << std::endl;
  }
  // As a process that ends in the middle of things: nothing is tidied up.
  _exit(0);
}

}  // namespace
}  // namespace mrd::e2e

int main(int argc, char** argv) { return mrd::e2e::Main(argc, argv); }
