#include "daemon/fabric/verbs/addresses.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "mrd/v1/status.h"

namespace mrd::fabric::verbs {
namespace {

bool IsLinkLocal(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET6, text.c_str(), &address) == 1 && IN6_IS_ADDR_LINKLOCAL(&address);
}

// A RoCE GID is an IP address of its interface: IPv6, or IPv4 mapped into it.
std::string GidText(const ibv_gid& gid) {
  in6_addr address;
  memcpy(&address, gid.raw, sizeof address);
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
  } else if (!IN6_IS_ADDR_UNSPECIFIED(&address)) {
    inet_ntop(AF_INET6, &address, text, sizeof text);
  }
  return text;
}

void AddUnique(std::vector<std::string>& texts, const std::string& text) {
  if (text.empty() || IsLinkLocal(text)) return;
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

}  // namespace

std::vector<std::string> AddressesOf(Api& api, ibv_context* context, const DeviceInfo& device) {
  std::vector<std::string> texts;
  if (device.transport == v1::Device::ROCE) {
    const auto gids = api.QueryGids(context);
    for (const ibv_gid_entry& entry : gids.value) AddUnique(texts, GidText(entry.gid));
    return texts;
  }
  // The GIDs of iWARP and InfiniBand are MAC addresses and port GUIDs. Their IP addresses are those
  // of the interfaces that belong to the device: iWARP's are its ports, IPoIB's stand beside the
  // device in sysfs.
  const std::vector<uint32_t> ports = api.PortInterfaces(context);
  const std::set<uint32_t> indices(ports.begin(), ports.end());
  const std::vector<std::string> parents = api.ParentInterfaces(device.name);
  const std::set<std::string> names(parents.begin(), parents.end());
  for (const NetAddress& address : api.NetAddresses()) {
    if (indices.count(address.ifindex) != 0 || names.count(address.ifname) != 0) {
      AddUnique(texts, address.text);
    }
  }
  return texts;
}

absl::StatusOr<sockaddr_storage> ParseAddress(const std::string& address, uint32_t port) {
  if (absl::Status status = CheckPort(port); !status.ok()) return status;
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;  // Asks no name server. Takes "fe80::1%eth0" too.
  addrinfo* found = nullptr;
  // A null byte would end the text early for the resolver.
  if (address.empty() || address.find('\0') != std::string::npos ||
      getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) {
    return MakeError(v1::ADDRESS_INVALID, absl::StrCat("'", address, "' is not an IP address"),
                     {.advice = "Use an IPv4 or IPv6 address as text; 0.0.0.0 and :: listen on "
                                "every device"});
  }
  sockaddr_storage result = {};
  memcpy(&result, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  if (result.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(result).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(result).sin6_port = htons(port);
  }
  return result;
}

std::string AddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
              sizeof text);
  }
  return text;
}

uint32_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

std::string EndpointText(const sockaddr_storage& address) {
  return absl::StrCat(AddressText(address), " port ", PortOf(address));
}

}  // namespace mrd::fabric::verbs
