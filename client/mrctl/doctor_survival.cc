// What doctor finds out about restarts of the daemon: what one would leave, what one has left.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/mrctl/doctor.h"

namespace mrctl {
namespace {

using mrd::v1::GetStatusResponse;
using mrd::v1::Survival;

// "1 session, 3 regions and 2 endpoints"; empty where there is none of them.
std::string CountText(uint64_t sessions, uint64_t regions, uint64_t endpoints) {
  std::vector<std::string> parts;
  const auto add = [&parts](uint64_t count, const char* what) {
    if (count > 0) parts.push_back(absl::StrCat(count, " ", what, count == 1 ? "" : "s"));
  };
  add(sessions, "session");
  add(regions, "region");
  add(endpoints, "endpoint");
  if (parts.size() < 2) return absl::StrJoin(parts, "");
  const std::string last = std::move(parts.back());
  parts.pop_back();
  return absl::StrJoin(parts, ", ") + " and " + last;
}

// Whose it is: an admin is told of all.
std::string Whose(const GetStatusResponse& status) {
  return status.session().admin() ? "" : " of " + status.policy().account();
}

mrd::v1::Finding CheckNoStore(const GetStatusResponse& status, const std::string& ending) {
  std::string text = "none: sessions, keys and connections end with the daemon";
  if (!ending.empty()) absl::StrAppend(&text, ", now ", ending, Whose(status));
  absl::StrAppend(&text, "; clients on the library register again, under new keys");
  // Its devices are in the daemon's own memory: no store would keep them.
  if (status.fabric() == "soft") return Told("store", text + " (fabric soft has none)");
  return Warning("store", text,
                 "Run it under mrd.service, the unit that is shipped: systemd then keeps for it "
                 "what a restart needs. In a container there is none.");
}

mrd::v1::Finding CheckStore(const mrd::v1::Store& store) {
  const std::string text =
      absl::StrCat("the service manager keeps ", store.used(), " of at most ", store.limit(),
                   " descriptors for the daemon, over its restarts");
  if (store.used() < store.limit() - store.limit() / 10) return Good("store", text);
  return Warning(
      "store", text,
      "Raise FileDescriptorStoreMax= and --store in mrd.service (at most 2000 are used), "
      "or end connections: each takes one, and new ones beyond it end with the daemon.");
}

}  // namespace

Findings CheckSurvival(const GetStatusResponse& status) {
  if (!status.has_survival()) {
    return {Told("store", "the daemon is an older one, and does not say what its restart leaves")};
  }
  const Survival& survival = status.survival();
  const std::string ending =
      CountText(survival.sessions().end(), survival.regions().end(), survival.endpoints().end());
  if (!survival.has_store()) return {CheckNoStore(status, ending)};
  Findings findings = {CheckStore(survival.store())};
  const std::string going_on = CountText(survival.sessions().go_on(), survival.regions().go_on(),
                                         survival.endpoints().go_on());
  if (!going_on.empty()) {
    findings.push_back(
        Good("restart", going_on + Whose(status) + " would go on over a restart of the daemon"));
  }
  if (!ending.empty()) {
    findings.push_back(Warning(
        "restart", ending + Whose(status) + " would end with a restart of the daemon",
        "Connections that were made while the store was full (`survives` of mrctl --json "
        "endpoints): make them anew "
        "when it has room. ON_DEMAND regions always end. The daemon's log says what else does "
        "not survive."));
  }
  for (const mrd::v1::Generation& old : survival.old_generations()) {
    findings.push_back(Warning(
        "generation",
        absl::StrCat(old.device(), ", generation ", old.generation(), ", of before a restart: ",
                     CountText(old.sessions(), old.regions(), old.endpoints()), Whose(status)),
        absl::StrCat("mrctl generations leave ", old.device(), " ", old.generation(),
                     " (admin) asks their clients to connect anew; it is closed when nothing lies "
                     "in it.")));
  }
  return findings;
}

}  // namespace mrctl
