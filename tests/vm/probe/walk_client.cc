#include "tests/vm/probe/walk_client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace probe {
namespace {

constexpr uint64_t kPage = 4096;
constexpr char kDomain[] = "walk";
// Of leases that the library renews: long enough that a slow machine does not miss one.
constexpr uint64_t kRenewedTtlMs = 15'000;

uint64_t Below(std::mt19937_64& random, uint64_t bound) { return random() % bound; }

bool IsOk(const std::string& answer) { return answer == "ok" || answer.starts_with("ok "); }

absl::Status MustBeOk(const std::string& answer) {
  return IsOk(answer) ? absl::OkStatus() : absl::InternalError(answer);
}

}  // namespace

absl::StatusOr<WalkClient> WalkClient::Start(const std::vector<std::string>& command,
                                             std::vector<std::string> devices, bool renews,
                                             uint64_t number) {
  auto speaker = Speaker::Start(command);
  if (!speaker.ok()) return speaker.status();
  WalkClient client(std::move(*speaker), std::move(devices), renews);
  client.buffer_bytes_ = 64 << 10;
  for (const std::string& line :
       {absl::StrCat("attach walk-", number, renews ? "" : " norenew"),
        absl::StrCat("open_domain ", kDomain), absl::StrCat("buffer b ", client.buffer_bytes_),
        // Where the last device cannot register it, and the others can.
        std::string("memfd low 8192 at 0x100000000000")}) {
    auto answer = client.speaker_.Say(line);
    if (!answer.ok()) return answer.status();
    if (!IsOk(*answer)) return absl::InternalError(absl::StrCat(line, ": ", *answer));
  }
  return client;
}

absl::Status WalkClient::Step(std::mt19937_64& random, Tally& tally) {
  if (absl::Status status = Settle(tally); !status.ok()) return status;
  const uint64_t choice = Below(random, 100);
  if (choice < 45 || (held_.empty() && choice < 75)) return Register(random);
  if (choice < 75) return Deregister(random);
  if (choice < 80) return Renew();
  if (choice < 95) return Refused(random);
  return NewBuffer(random);
}

absl::Status WalkClient::Settle(Tally& tally) {
  if (!judge_) return absl::OkStatus();
  auto answer = speaker_.Hear();
  const Judge judge = std::exchange(judge_, nullptr);
  absl::Status status = answer.ok() ? judge(*answer, told_) : answer.status();
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat(line_, ": ", std::string(status.message())));
  }
  ++tally[what_];
  return status;
}

std::optional<WalkClient::Clock::time_point> WalkClient::quiet_at() const {
  std::optional<Clock::time_point> last;
  for (const auto& [name, held] : held_) {
    if (held.ttl.count() > 0 && (!last || held.latest > *last)) last = held.latest;
  }
  return last;
}

WalkClient::Holdings WalkClient::Expected() const {
  Holdings sum;
  for (const auto& [name, held] : held_) {
    if (held.ttl.count() > 0) continue;
    sum.regions += held.holdings.regions;
    sum.pages += held.holdings.pages;
  }
  return sum;
}

absl::Status WalkClient::Begin(std::string line, std::string what, Judge judge) {
  line_ = std::move(line);
  what_ = std::move(what);
  judge_ = std::move(judge);
  told_ = Clock::now();
  return speaker_.Tell(line_);
}

absl::Status WalkClient::Register(std::mt19937_64& random) {
  const uint64_t count = 1 + Below(random, 6);
  const uint64_t length = 1 + Below(random, buffer_bytes_ / count);
  const uint64_t offset = Below(random, buffer_bytes_ - count * length + 1);
  std::vector<std::string> devices = devices_;
  // Each by itself, or all of them in one call.
  if (const uint64_t choice = Below(random, devices.size() + 1); choice < devices.size()) {
    devices = {devices_[choice]};
  }
  Held held;
  held.holdings.regions = count * devices.size();
  for (uint64_t i = 0; i < count; ++i) {
    // Buffers begin at a page.
    const uint64_t first = (offset + i * length) / kPage;
    const uint64_t last = (offset + (i + 1) * length - 1) / kPage;
    held.holdings.pages += (last - first + 1) * devices.size();
  }
  std::string options;
  if (Below(random, 2) == 0) {
    const uint64_t ttl = renews_ ? kRenewedTtlMs : 1000 + Below(random, 2000);
    absl::StrAppend(&options, " ttl=", ttl);
    if (!renews_) held.ttl = std::chrono::milliseconds(ttl);
  }
  if (Below(random, 4) == 0) absl::StrAppend(&options, " domain=", kDomain);
  const std::string name = absl::StrCat("r", next_name_++);
  return Begin(absl::StrCat("register ", name, ":", count, " b ", offset, " ", length, " write ",
                            absl::StrJoin(devices, ","), options),
               options.find("ttl=") != std::string::npos ? "registered_with_ttl" : "registered",
               [this, name, held](const std::string& answer, Clock::time_point told) mutable {
                 held.earliest = told + held.ttl;
                 held.latest = Clock::now() + held.ttl;
                 held_[name] = held;
                 return MustBeOk(answer);
               });
}

absl::Status WalkClient::Deregister(std::mt19937_64& random) {
  const std::string name = std::next(held_.begin(), Below(random, held_.size()))->first;
  const Held held = held_[name];
  held_.erase(name);
  return Begin(absl::StrCat("deregister ", name), "deregistered",
               [this, held](const std::string& answer, Clock::time_point) {
                 const bool may_have_lapsed = held.ttl.count() > 0 && Clock::now() >= held.earliest;
                 if (may_have_lapsed && answer.starts_with("error reason=LEASE_UNKNOWN ")) {
                   what_ = "had_lapsed";
                   return absl::OkStatus();
                 }
                 return MustBeOk(answer);
               });
}

absl::Status WalkClient::Renew() {
  return Begin("renew", "renewed", [this](const std::string& answer, Clock::time_point told) {
    for (auto& [name, held] : held_) {
      // One that has lapsed already stays so: of it only the latest time becomes later.
      if (told < held.earliest) held.earliest = told + held.ttl;
      held.latest = Clock::now() + held.ttl;
    }
    return MustBeOk(answer);
  });
}

absl::Status WalkClient::Refused(std::mt19937_64& random) {
  const std::string all = absl::StrJoin(devices_, ",");
  const std::pair<std::string, std::string> refusals[] = {
      {absl::StrCat("register x b 0 ", buffer_bytes_ * 4, " write ", all), "OUT_OF_RANGE"},
      {"register x b 0 4096 write mlx5_9", "DEVICE_UNKNOWN"},
      {absl::StrCat("register x b 0 4096 write ", all, " domain=nobodys"), "DOMAIN_UNKNOWN"},
      // What the first device has taken goes back.
      {absl::StrCat("register x:2 low 0 4096 write ", all), "ADDRESS_UNUSABLE"},
      {absl::StrCat("register x b 0 4096 remote_write ", all), "ACCESS_INVALID"},
  };
  const auto& [line, reason] = refusals[Below(random, std::size(refusals))];
  return Begin(line, "refused", [reason = reason](const std::string& answer, Clock::time_point) {
    if (answer.starts_with(absl::StrCat("error reason=", reason, " "))) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("not ", reason, ": ", answer));
  });
}

// The regions of the one before stay.
absl::Status WalkClient::NewBuffer(std::mt19937_64& random) {
  buffer_bytes_ = (8 + Below(random, 120)) << 10;
  return Begin(absl::StrCat("buffer b ", buffer_bytes_), "new_buffer",
               [](const std::string& answer, Clock::time_point) { return MustBeOk(answer); });
}

}  // namespace probe
