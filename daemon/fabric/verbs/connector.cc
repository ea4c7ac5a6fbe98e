#include "daemon/fabric/verbs/connector.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "daemon/fabric/verbs/addresses.h"
#include "daemon/fabric/verbs/connect_attempt.h"
#include "mrd/v1/status.h"

namespace mrd::fabric::verbs {
namespace {

// Counts an attempt for as long as the kernel works on it.
struct Counted {
  Counted(std::shared_ptr<std::atomic<uint64_t>> counter, std::shared_ptr<void> owners)
      : count(std::move(counter)), held(std::move(owners)) {
    count->fetch_add(1);
  }
  ~Counted() { count->fetch_sub(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  const std::shared_ptr<std::atomic<uint64_t>> count;
  const std::shared_ptr<void> held;
};

}  // namespace

Connector::Connector(Cm& cm) : cm_(cm), count_(std::make_shared<std::atomic<uint64_t>>(0)) {
  cm_.loop().RunSync([this] {
    on_gone_ = cm_.OnGone([this](const Device& device) {
      const auto attempts = attempts_;  // Each leaves the set as it ends.
      for (const auto& attempt : attempts) attempt->OnGone(device);
    });
  });
}

Connector::~Connector() {
  cm_.loop().RunSync([this] {
    cm_.DropGone(on_gone_);
    const auto attempts = attempts_;  // Each leaves the set as it ends.
    for (const auto& attempt : attempts) {
      attempt->Finish(MakeError(v1::DRAINING, "the daemon is ending"));
    }
  });
}

void Connector::Connect(const std::string& address, uint32_t port, const std::string& source,
                        ConnectionSpec spec, EstablishedCallback done) {
  absl::Status status = CheckPrivateData(spec.private_data, kMaxConnectData);
  auto destination = ParseAddress(address, port);
  if (status.ok()) status = destination.status();
  sockaddr_storage from = {};  // AF_UNSPEC: by the routing table.
  if (status.ok() && !source.empty()) {
    const auto parsed = ParseAddress(source, 0);
    status = parsed.status();
    if (parsed.ok()) from = *parsed;
  }
  if (status.ok() && count_->load() >= kMostConnects) {
    status = MakeError(
        v1::BUSY, absl::StrCat(kMostConnects, " connections are being made, the most at a time"),
        {.limit_name = "connections being made",
         .limit = kMostConnects,
         .used = kMostConnects,
         .advice = "Try again after a pause"});
  }
  if (!status.ok()) {
    FailAttempt(spec, done, std::move(status));
    return;
  }
  spec.held = std::make_shared<Counted>(count_, std::move(spec.held));
  auto attempt =
      std::make_shared<ConnectAttempt>(cm_, from, *destination, std::move(spec), std::move(done));
  cm_.loop().Post([this, attempt = std::move(attempt)] {
    attempts_.insert(attempt);
    attempt->Start([this, key = attempt] { attempts_.erase(key); });
  });
}

}  // namespace mrd::fabric::verbs
