#include "daemon/fabric/verbs/rdma_netlink.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/unique_fd.h"

namespace mrd::fabric::verbs {
namespace {

void Append(std::string& message, uint16_t type, std::string_view value) {
  nlattr attribute = {};
  attribute.nla_type = type;
  attribute.nla_len = NLA_HDRLEN + value.size();
  message.append(reinterpret_cast<const char*>(&attribute), NLA_HDRLEN);
  message.append(value);
  message.append(NLA_ALIGN(attribute.nla_len) - attribute.nla_len, '\0');
}

using OnAttribute = std::function<void(uint16_t type, std::string_view value)>;

// The attributes of one message lie behind its header, each padded to 4 bytes.
void ReadAttributes(const char* data, size_t size, const OnAttribute& visit) {
  for (size_t at = 0; at + NLA_HDRLEN <= size;) {
    nlattr attribute;
    memcpy(&attribute, data + at, sizeof attribute);
    if (attribute.nla_len < NLA_HDRLEN || at + attribute.nla_len > size) return;
    visit(attribute.nla_type,
          std::string_view(data + at + NLA_HDRLEN, attribute.nla_len - NLA_HDRLEN));
    at += NLA_ALIGN(attribute.nla_len);
  }
}

// False: that was the last of the answer.
bool ReadMessages(const char* data, size_t size, const OnAttribute& visit) {
  bool more = false;
  for (size_t at = 0; at + NLMSG_HDRLEN <= size;) {
    nlmsghdr header;
    memcpy(&header, data + at, sizeof header);
    if (header.nlmsg_len < NLMSG_HDRLEN || at + header.nlmsg_len > size) return false;
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return false;
    ReadAttributes(data + at + NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN, visit);
    more = (header.nlmsg_flags & NLM_F_MULTI) != 0;
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  return more;
}

// One question to the kernel, and the attributes of its answer.
void Ask(uint16_t command, uint16_t flags, const std::string& attributes,
         const OnAttribute& visit) {
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (!fd) return;
  // The kernel answers at once, or there is no such answer in this kernel.
  const timeval wait = {1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  nlmsghdr header = {};
  header.nlmsg_len = NLMSG_HDRLEN + attributes.size();
  header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
  header.nlmsg_flags = NLM_F_REQUEST | flags;
  std::string message(reinterpret_cast<const char*>(&header), NLMSG_HDRLEN);
  message += attributes;
  if (send(fd.get(), message.data(), message.size(), 0) != static_cast<ssize_t>(message.size())) {
    return;
  }
  char buffer[16384];
  ssize_t size;
  do {
    size = recv(fd.get(), buffer, sizeof buffer, 0);
  } while (size > 0 && ReadMessages(buffer, size, visit));
}

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
std::optional<T> NumberOf(std::string_view value) {
  if (value.size() != sizeof(T)) return std::nullopt;
  T number;
  memcpy(&number, value.data(), sizeof number);
  return number;
}

}  // namespace

std::vector<uint32_t> PortInterfaceIndices(uint32_t device_index) {
  std::vector<uint32_t> indices;
  std::string attributes;
  Append(attributes, RDMA_NLDEV_ATTR_DEV_INDEX, BytesOf(device_index));
  Ask(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, attributes,
      [&indices](uint16_t type, std::string_view value) {
        if (type != RDMA_NLDEV_ATTR_NDEV_INDEX) return;
        if (const auto index = NumberOf<uint32_t>(value)) indices.push_back(*index);
      });
  return indices;
}

std::optional<uint32_t> UverbsDriverId(uint32_t device_index) {
  std::optional<uint32_t> driver;
  std::string attributes;
  Append(attributes, RDMA_NLDEV_ATTR_DEV_INDEX, BytesOf(device_index));
  Append(attributes, RDMA_NLDEV_ATTR_CHARDEV_TYPE, std::string_view("uverbs", sizeof "uverbs"));
  Ask(RDMA_NLDEV_CMD_GET_CHARDEV, 0, attributes, [&driver](uint16_t type, std::string_view value) {
    if (type != RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID) return;
    // fill_nldev... of the kernel puts it as u32 before 5.2, as u64 since; the header says u64.
    if (const auto wide = NumberOf<uint64_t>(value)) driver = static_cast<uint32_t>(*wide);
    if (const auto narrow = NumberOf<uint32_t>(value)) driver = *narrow;
  });
  return driver;
}

}  // namespace mrd::fabric::verbs
