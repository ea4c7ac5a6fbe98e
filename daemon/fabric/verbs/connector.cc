#include "daemon/fabric/verbs/connector.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "daemon/fabric/verbs/addresses.h"
#include "daemon/fabric/verbs/connect_attempt.h"
#include "mrd/v1/status.h"

namespace mrd::fabric::verbs {

Connector::Connector(Cm& cm) : cm_(cm), count_(std::make_shared<std::atomic<uint64_t>>(0)) {}

Connector::~Connector() {
  cm_.loop().RunSync([this] {
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
  if (status.ok() && count_->load() >= kMaxAttempts) {
    status = MakeError(v1::BUSY, absl::StrCat(kMaxAttempts, " connections are being made"),
                       {.limit_name = "connections being made",
                        .limit = kMaxAttempts,
                        .used = kMaxAttempts,
                        .advice = "Try again after a pause"});
  }
  if (!status.ok()) {
    done(std::move(status));
    return;
  }
  auto attempt = std::make_shared<ConnectAttempt>(cm_, count_, from, *destination, std::move(spec),
                                                  std::move(done));
  cm_.loop().Post([this, attempt = std::move(attempt)] {
    attempts_.insert(attempt);
    attempt->Start([this, key = attempt] { attempts_.erase(key); });
  });
}

}  // namespace mrd::fabric::verbs
