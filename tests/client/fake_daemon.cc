#include "tests/client/fake_daemon.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace mrd::testing {

FakeDaemon::FakeDaemon(Script script) {
  char name[] = "/tmp/mrd-test-XXXXXX";
  dir_ = mkdtemp(name);
  // A library that finds none does not attach. FakeServices takes its place.
  if (mknod((dir_ + "/mrd.sock").c_str(), S_IFSOCK | 0600, 0) != 0) abort();
  Start(std::move(script));
}

void FakeDaemon::Start(Script script) {
  listener_ = internal::UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, (dir_ + "/attach.sock").c_str());
  unlink(address.sun_path);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_.get(), 16) != 0) {
    abort();
  }
  // Credentials are asked for before a client can send any.
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  acceptor_ = std::thread([this, script = std::move(script)] { AcceptLoop(script); });
}

FakeDaemon::~FakeDaemon() {
  Stop();
  std::filesystem::remove_all(dir_);
}

void FakeDaemon::Stop() {
  shutdown(listener_.get(), SHUT_RDWR);
  if (acceptor_.joinable()) acceptor_.join();
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    for (auto& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
    threads.swap(threads_);
  }
  for (auto& thread : threads) thread.join();
}

void FakeDaemon::AcceptLoop(const Script& script) {
  for (;;) {
    internal::UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) return;
    std::lock_guard lock(mutex_);
    const auto it = sockets_.insert(sockets_.end(), std::move(socket));
    threads_.emplace_back([this, script, it] {
      script(it->get());
      std::lock_guard close_lock(mutex_);
      sockets_.erase(it);
    });
  }
}

ClientSaid FakeDaemon::Receive(int socket) {
  char data[4097];
  alignas(cmsghdr) char control[4096];
  iovec iov = {data, sizeof(data)};
  msghdr message = {};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ClientSaid said;
  const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (size <= 0 || !said.packet.ParseFromArray(data, static_cast<int>(size))) {
    said.hung_up = true;
    return said;
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_type == SCM_RIGHTS) {
      for (size_t at = CMSG_LEN(0); at < c->cmsg_len; at += sizeof(int)) {
        int fd;
        memcpy(&fd, reinterpret_cast<char*>(c) + at, sizeof(fd));
        said.fds.emplace_back(fd);
      }
    } else if (c->cmsg_type == SCM_CREDENTIALS) {
      said.credentials.emplace();
      memcpy(&*said.credentials, CMSG_DATA(c), sizeof(ucred));
    }
  }
  return said;
}

void FakeDaemon::SendBytes(int socket, const std::string& bytes) {
  (void)!send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void FakeDaemon::Send(int socket, const v1::DaemonPacket& packet) {
  SendBytes(socket, packet.SerializeAsString());
}

v1::DaemonPacket FakeDaemon::WelcomePacket() {
  v1::DaemonPacket packet;
  auto* welcome = packet.mutable_welcome();
  welcome->set_protocol_version(1);
  welcome->set_session_id(7);
  welcome->set_token("0123456789abcdef");
  welcome->set_daemon_version("9.9.9");
  welcome->set_fabric("soft");
  welcome->mutable_limits()->set_max_buffers_per_packet(4);
  welcome->mutable_limits()->set_max_buffers(64);
  welcome->mutable_limits()->set_max_ranges_per_call(3);
  return packet;
}

void FakeDaemon::Welcome(int socket) {
  Receive(socket);
  Send(socket, WelcomePacket());
}

void FakeDaemon::ServeUntilHangUp(int socket) {
  Welcome(socket);
  while (!Receive(socket).hung_up) {
  }
}

int CountFds() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

int CountMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    // Only those of memfds: the allocator's and threads' come and go by themselves.
    if (line.find("/memfd:mrd") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace mrd::testing
