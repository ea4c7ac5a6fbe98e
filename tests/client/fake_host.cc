#include "tests/client/fake_host.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "mrd/v1/status.h"

namespace mrd::testing {

FakeHost::FakeHost(bool store, std::function<void(FakeServices&)> set)
    : store_(store),
      set_(std::move(set)),
      daemon_([this](int socket) { Serve(socket); }),
      services_(std::make_unique<FakeServices>(daemon_.dir(), set_)) {}

FakeHost::~FakeHost() { Down(); }

void FakeHost::Down() {
  daemon_.Stop();
  services_ = nullptr;
  unlink((dir() + "/mrd.sock").c_str());
}

void FakeHost::Up() {
  services_ = std::make_unique<FakeServices>(dir(), set_);
  daemon_.Start([this](int socket) { Serve(socket); });
}

void FakeHost::Forget() {
  std::lock_guard lock(mutex_);
  known_.clear();
}

void FakeHost::Refuse(std::optional<absl::Status> why) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(why);
}

void FakeHost::Tell(v1::AttachEvent event) {
  std::lock_guard lock(mutex_);
  v1::DaemonPacket packet;
  *packet.mutable_event() = std::move(event);
  packet.mutable_event()->set_sequence(++sequence_);
  FakeDaemon::Send(socket_, packet);
}

void FakeHost::HangUp() {
  std::lock_guard lock(mutex_);
  shutdown(socket_, SHUT_RDWR);
}

std::string FakeHost::TokenOf(uint64_t session_id) {
  std::string token = "token-of-session";
  token[15] = static_cast<char>('0' + session_id);
  return token;
}

void FakeHost::Serve(int socket) {
  const ClientSaid hello = FakeDaemon::Receive(socket);
  if (hello.hung_up) return;
  const std::string token = hello.packet.hello().token();
  v1::DaemonPacket answer = FakeDaemon::WelcomePacket();
  std::unique_lock lock(mutex_);
  hellos_.push_back(token);
  std::optional<absl::Status> refusal = token.empty() ? refusal_ : std::nullopt;
  if (token.empty()) {
    ++sessions_;
    answer.mutable_welcome()->set_session_id(sessions_);
    answer.mutable_welcome()->set_token(TokenOf(sessions_));
    if (!refusal) known_.push_back(TokenOf(sessions_));
  } else if (std::find(known_.begin(), known_.end(), token) != known_.end()) {
    answer.mutable_welcome()->set_session_id(token[15] - '0');
    answer.mutable_welcome()->set_token(token);
    answer.mutable_welcome()->set_resumed(true);
  } else {
    refusal = MakeError(v1::SESSION_UNKNOWN, "no such session");
  }
  if (store_) answer.mutable_welcome()->mutable_resume_within()->set_seconds(10);
  if (refusal) {
    v1::DaemonPacket packet;
    packet.mutable_refusal()->set_code(static_cast<int>(refusal->code()));
    packet.mutable_refusal()->set_message(std::string(refusal->message()));
    packet.mutable_refusal()->set_detail(DetailOf(*refusal)->SerializeAsString());
    FakeDaemon::Send(socket, packet);
    return;
  }
  FakeDaemon::Send(socket, answer);
  if (drop_at_once) return;
  socket_ = socket;
  sequence_ = 0;
  if (answer.welcome().resumed()) {
    v1::DaemonPacket packet;
    packet.mutable_event()->set_kind(v1::AttachEvent::EVENTS_LOST);
    packet.mutable_event()->set_sequence(++sequence_);
    FakeDaemon::Send(socket, packet);
  }
  lock.unlock();
  for (;;) {
    const ClientSaid said = FakeDaemon::Receive(socket);
    lock.lock();
    if (said.hung_up) {
      if (socket_ == socket) socket_ = -1;
      return;
    }
    const auto& ids = said.packet.pass_buffers().buffer_ids();
    for (size_t i = 0; i < said.fds.size(); ++i) {
      struct stat st = {};
      fstat(said.fds[i].get(), &st);
      passed_.emplace_back(ids[static_cast<int>(i)], st.st_ino);
    }
    lock.unlock();
  }
}

std::vector<std::string> FakeHost::hellos() {
  std::lock_guard lock(mutex_);
  return hellos_;
}

std::vector<std::pair<uint64_t, ino_t>> FakeHost::passed() {
  std::lock_guard lock(mutex_);
  return passed_;
}

bool Soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

absl::Status GrantFresh(uint64_t generation, const v1::RegisterRequest& request,
                        v1::RegisterResponse* response) {
  static std::atomic<uint64_t> next = 1000;
  for (const v1::Range& range : request.ranges()) {
    v1::Lease* lease = response->add_leases();
    const uint64_t id = next.fetch_add(1);
    lease->set_lease_id(id);
    lease->set_buffer_id(range.buffer_id());
    lease->set_offset(range.offset());
    lease->set_length(range.length());
    lease->set_addr(range.addr());
    lease->set_domain(request.domain());
    if (request.has_ttl()) *lease->mutable_remaining() = request.ttl();
    v1::Key* key = lease->add_keys();
    key->set_device("fake0");
    key->set_generation(generation);
    key->set_lkey(static_cast<uint32_t>(id));
    key->set_rkey(static_cast<uint32_t>(id + 500'000));
  }
  return absl::OkStatus();
}

}  // namespace mrd::testing
