#include "daemon/fabric/soft/loopback.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "daemon/fabric/soft/soft_device.h"
#include "mrd/v1/status.h"

namespace mrd::fabric {
namespace {

// RFC 6335, section 6: the dynamic ports.
constexpr uint32_t kFirstPort = 49152;
constexpr uint32_t kLastPort = 65535;

// All loopback addresses are one host with one set of ports. The wildcards are that host too.
absl::StatusOr<std::string> Normalize(const std::string& address) {
  if (address == "::1" || address == "::") return std::string("::1");
  for (const char* name : {"", "localhost", "127.0.0.1", "0.0.0.0"}) {
    if (address == name) return std::string("127.0.0.1");
  }
  return MakeError(v1::ADDRESS_INVALID,
                   absl::StrCat("'", address, "' is no address of device soft0"),
                   {.advice = "Leave it empty, or use 127.0.0.1 or ::1: soft0 connects endpoints "
                              "of one daemon only"});
}

}  // namespace

class Loopback::ListenerImpl final : public Listener {
 public:
  ListenerImpl(Loopback& loopback, std::shared_ptr<LoopbackPort> port)
      : loopback_(loopback), port_(std::move(port)) {}

  ~ListenerImpl() override {
    loopback_.loop_.RunSync([this] {
      loopback_.ports_.erase(port_->info().local_port);
      port_->Close();
    });
  }

  const ConnectionInfo& info() const override { return port_->info(); }

  void Accept(ConnectionSpec spec, EstablishedCallback done) override {
    if (absl::Status status = CheckPrivateData(spec.private_data, kMaxAcceptData); !status.ok()) {
      FailAttempt(spec, done, std::move(status));
      return;
    }
    loopback_.loop_.Post([port = port_, spec = std::move(spec), done = std::move(done)]() mutable {
      port->Accept(std::move(spec), std::move(done));
    });
  }

 private:
  Loopback& loopback_;
  const std::shared_ptr<LoopbackPort> port_;
};

absl::StatusOr<std::unique_ptr<Listener>> Loopback::Listen(const std::string& address,
                                                           uint32_t port, int backlog) {
  if (absl::Status status = CheckPort(port); !status.ok()) return status;
  absl::StatusOr<std::string> host = Normalize(address);
  if (!host.ok()) return host.status();
  absl::StatusOr<std::shared_ptr<LoopbackPort>> bound;
  loop_.RunSync([&] { bound = Bind(*host, port, backlog); });
  if (!bound.ok()) return bound.status();
  return std::make_unique<ListenerImpl>(*this, *std::move(bound));
}

absl::StatusOr<std::shared_ptr<LoopbackPort>> Loopback::Bind(const std::string& address,
                                                             uint32_t port, int backlog) {
  if (port == 0) port = FreePort();
  if (port == 0 || ports_.count(port) != 0) {
    return MakeError(v1::CONNECTION_FAILED,
                     absl::StrCat("port ", port, " of device soft0 is in use"),
                     {.errno_value = EADDRINUSE, .advice = "Use another port, or 0 for any"});
  }
  ConnectionInfo info;
  info.device = kSoftDevice;
  info.generation = kSoftGeneration;
  info.local_address = address;
  info.local_port = port;
  auto made = std::make_shared<LoopbackPort>(loop_, std::move(info), std::max(backlog, 1));
  ports_[port] = made;
  return made;
}

void Loopback::Connect(const std::string& address, uint32_t port, const std::string& source,
                       ConnectionSpec spec, EstablishedCallback done) {
  absl::Status status = CheckPort(port);
  if (status.ok()) status = CheckPrivateData(spec.private_data, kMaxConnectData);
  if (status.ok()) status = Normalize(address).status();
  absl::StatusOr<std::string> local = Normalize(source);
  if (status.ok()) status = local.status();
  if (!status.ok()) {
    FailAttempt(spec, done, std::move(status));
    return;
  }
  loop_.Post([this, port, local = *std::move(local), spec = std::move(spec),
              done = std::move(done)]() mutable {
    Request(port, local, std::move(spec), std::move(done));
  });
}

void Loopback::Request(uint32_t port, const std::string& source, ConnectionSpec spec,
                       EstablishedCallback done) {
  const auto it = ports_.find(port);
  if (it == ports_.end()) {
    FailAttempt(spec, done, LoopbackRefused(port));
    return;
  }
  ConnectionInfo info;
  info.device = kSoftDevice;
  info.generation = kSoftGeneration;
  info.local_address = source;
  info.local_port = FreePort();
  info.peer_address = it->second->info().local_address;
  info.peer_port = port;
  info.qp_num = last_qp_ + 1;  // The next one is the accepting side's.
  last_qp_ += 2;
  const auto listening = it->second;  // A callback may end the listener.
  listening->Request(std::move(spec), std::move(done), std::move(info));
}

uint32_t Loopback::FreePort() {
  for (uint32_t tried = kFirstPort; tried <= kLastPort; ++tried) {
    last_port_ = last_port_ < kFirstPort || last_port_ >= kLastPort ? kFirstPort : last_port_ + 1;
    if (ports_.count(last_port_) == 0) return last_port_;
  }
  return 0;
}

}  // namespace mrd::fabric
