// mrctl endpoints and mrctl domains: what sessions have beside regions.
#include <cstdio>
#include <string>

#include "absl/strings/ascii.h"
#include "client/mrctl/command.h"
#include "client/mrctl/table.h"
#include "client/mrctl/terminal.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

std::string StateOf(const mrd::v1::Endpoint& endpoint) {
  std::string name = mrd::v1::Endpoint::State_Name(endpoint.state());
  absl::AsciiStrToLower(&name);
  return name;
}

std::string Address(const std::string& host, uint32_t port) {
  return host.empty() && port == 0 ? "-" : FormatHostPort(host, port);
}

std::string Mode(uint32_t mode) {
  char text[16];
  snprintf(text, sizeof text, "%04o", mode);
  return text;
}

}  // namespace

int RunEndpoints(const GlobalOptions& options, uint64_t session_id) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto endpoints = client->ListAllEndpoints(session_id);
  if (!endpoints.ok()) return Fail(options, endpoints.status());
  if (options.json) {
    mrd::v1::ListAllEndpointsResponse response;
    response.mutable_endpoints()->Add(endpoints->begin(), endpoints->end());
    return PrintJson(options, response);
  }
  if (endpoints->empty()) return Print(options, "no endpoints\n");
  Table table({">SESSION", "STATE", "DEVICE", "LOCAL", "PEER", ">QP", ">ENDPOINT"});
  for (const auto& held : *endpoints) {
    const auto& endpoint = held.endpoint();
    table.Add({std::to_string(held.session_id()), StateOf(endpoint),
               endpoint.device().empty() ? "all" : endpoint.device(),
               Address(endpoint.local_address(), endpoint.local_port()),
               Address(endpoint.peer_address(), endpoint.peer_port()),
               endpoint.qp_num() == 0 ? "-" : std::to_string(endpoint.qp_num()),
               std::to_string(endpoint.endpoint_id())});
  }
  return Print(options, table.Text());
}

int RunDomains(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto domains = client->ListAllDomains();
  if (!domains.ok()) return Fail(options, domains.status());
  if (options.json) {
    mrd::v1::ListAllDomainsResponse response;
    response.mutable_domains()->Add(domains->begin(), domains->end());
    return PrintJson(options, response);
  }
  if (domains->empty()) return Print(options, "no named domains\n");
  Table table({"DOMAIN", ">OWNER", ">GROUP", "MODE", ">MEMBERS"});
  for (const auto& each : *domains) {
    const auto& domain = each.domain();
    table.Add({domain.name(), std::to_string(domain.owner()), std::to_string(domain.group()),
               Mode(domain.mode()), std::to_string(each.members())});
  }
  return Print(options, table.Text());
}

}  // namespace mrctl
