// Regions on one device, or on all, and the named domains that they lie in.
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/vm/kills/operations.h"

namespace kills {
namespace {

constexpr char kDomain[] = "kills";
constexpr std::chrono::seconds kRenewedTtl{30};
constexpr std::chrono::milliseconds kShortTtl{1000};

absl::Status Attached(Scene& scene) { return AddHolder(scene); }

Operation::Part Registers(mrd::RegisterOptions options, uint64_t count) {
  return [options = std::move(options), count](Scene& scene) {
    return Register(scene.holders.front(), options, count);
  };
}

mrd::RegisterOptions WithTtl(mrd::RegisterOptions options) {
  options.ttl = kRenewedTtl;
  return options;
}

mrd::RegisterOptions InDomain(mrd::RegisterOptions options) {
  options.domain = kDomain;
  return options;
}

mrd::RegisterOptions Released(mrd::RegisterOptions options) {
  options.release_after = true;
  return options;
}

absl::Status Opens(Scene& scene) {
  return scene.holders.front().client->OpenDomain(kDomain).status();
}

absl::Status Closes(Scene& scene) { return scene.holders.front().client->CloseDomain(kDomain); }

absl::Status Deregisters(Scene& scene) { return Deregister(scene.holders.front()); }

absl::Status AddsKeys(Scene& scene) { return scene.holders.front().client->AddKeys().status(); }

absl::Status Restarts(Scene& scene) { return scene.world.Kill(); }

absl::Status Renews(Scene& scene) {
  Holder& holder = scene.holders.front();
  const uint64_t lease = holder.regions.front().lease_id();
  if (auto one = holder.client->RenewLeases({&lease, 1}); !one.ok()) return one.status();
  return holder.client->RenewLeases().status();
}

absl::Status AllHaveLapsed(Scene& scene) {
  return scene.world.Await([&scene]() -> absl::Status {
    auto admin = scene.world.Admin();
    if (!admin.ok()) return admin.status();
    auto leases = (*admin)->ListAllLeases();
    if (!leases.ok()) return leases.status();
    if (!leases->empty()) return absl::InternalError("a lease has not lapsed");
    return absl::OkStatus();
  });
}

absl::Status Nothing(Scene&) { return absl::OkStatus(); }

absl::Status RevokesLeases(Scene& scene) {
  std::vector<uint64_t> ids;
  for (const mrd::Region& region : scene.holders.front().regions) ids.push_back(region.lease_id());
  auto admin = scene.world.Admin();
  if (!admin.ok()) return admin.status();
  return (*admin)->RevokeLeases(ids, "a test").status();
}

}  // namespace

std::vector<Operation> LeaseOperations(const std::string& device) {
  const mrd::RegisterOptions on = Options(device);
  const mrd::RegisterOptions everywhere = Options("");
  const auto prepared = [](Operation::Part part) { return Then(Attached, std::move(part)); };
  mrd::RegisterOptions lapsing = on;
  lapsing.ttl = kShortTtl;
  const Operation::Part waits = [lapsing](Scene& scene) {
    absl::Status attached = AddHolder(scene, /*renew=*/false);
    return attached.ok() ? Register(scene.holders.front(), lapsing, 2) : attached;
  };
  return {
      {.name = "a region is registered", .prepare = Attached, .act = Registers(on, 1)},
      {.name = "the first region of a daemon's life",
       .prepare = Then(Restarts, Attached),
       .act = Registers(on, 1)},
      {.name = "another one", .prepare = prepared(Registers(on, 1)), .act = Registers(on, 1)},
      {.name = "three in one call", .prepare = Attached, .act = Registers(on, 3)},
      {.name = "two on all devices", .prepare = Attached, .act = Registers(everywhere, 2)},
      {.name = "one with a ttl, in a named domain",
       .prepare = prepared(Opens),
       .act = Registers(WithTtl(InDomain(on)), 1)},
      {.name = "one whose buffer is released after it",
       .prepare = Attached,
       .act = Registers(Released(on), 1)},
      {.name = "a region is deregistered",
       .prepare = prepared(Registers(on, 1)),
       .act = Deregisters},
      {.name = "three in one call are deregistered",
       .prepare = prepared(Then(Registers(on, 1), Registers(everywhere, 2))),
       .act = Deregisters},
      {.name = "regions get keys after a restart",
       .prepare = prepared(Then(Then(Registers(WithTtl(on), 1), Registers(on, 2)), Restarts)),
       .act = AddsKeys},
      {.name = "a region with keys of two generations is deregistered",
       .prepare = prepared(Then(Then(Registers(on, 1), Restarts), AddsKeys)),
       .act = Deregisters},
      {.name = "leases are renewed", .prepare = prepared(Registers(WithTtl(on), 2)), .act = Renews},
      {.name = "leases lapse",
       .prepare = waits,
       .act = Nothing,
       .settle = AllHaveLapsed,
       .may_end = true},
      {.name = "leases are revoked",
       .prepare = prepared(Registers(everywhere, 2)),
       .act = RevokesLeases,
       .may_fail = true,
       .may_end = true},
      {.name = "a named domain is opened", .prepare = Attached, .act = Opens},
      {.name = "one that has regions is closed",
       .prepare = prepared(Then(Opens, Registers(InDomain(on), 2))),
       .act = Closes},
  };
}

}  // namespace kills
