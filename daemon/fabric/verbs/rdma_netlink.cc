#include "daemon/fabric/verbs/rdma_netlink.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstddef>

namespace mrd::fabric::verbs {
namespace {

struct Request {
  nlmsghdr header;
  nlattr attribute;
  uint32_t device_index;
};

bool Send(int fd, uint32_t device_index) {
  Request request = {};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_PORT_GET);
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.attribute.nla_len = NLA_HDRLEN + sizeof(uint32_t);
  request.attribute.nla_type = RDMA_NLDEV_ATTR_DEV_INDEX;
  request.device_index = device_index;
  return send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request);
}

// One port: its attributes lie behind the header, each padded to 4 bytes.
void ReadPort(const char* data, size_t size, std::vector<uint32_t>& indices) {
  for (size_t at = 0; at + NLA_HDRLEN <= size;) {
    nlattr attribute;
    memcpy(&attribute, data + at, sizeof attribute);
    if (attribute.nla_len < NLA_HDRLEN || at + attribute.nla_len > size) return;
    if (attribute.nla_type == RDMA_NLDEV_ATTR_NDEV_INDEX &&
        attribute.nla_len == NLA_HDRLEN + sizeof(uint32_t)) {
      uint32_t index;
      memcpy(&index, data + at + NLA_HDRLEN, sizeof index);
      indices.push_back(index);
    }
    at += NLA_ALIGN(attribute.nla_len);
  }
}

// False: that was the last of the answer.
bool ReadMessages(const char* data, size_t size, std::vector<uint32_t>& indices) {
  for (size_t at = 0; at + NLMSG_HDRLEN <= size;) {
    nlmsghdr header;
    memcpy(&header, data + at, sizeof header);
    if (header.nlmsg_len < NLMSG_HDRLEN || at + header.nlmsg_len > size) return false;
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return false;
    ReadPort(data + at + NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN, indices);
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  return true;
}

}  // namespace

std::vector<uint32_t> PortInterfaceIndices(uint32_t device_index) {
  std::vector<uint32_t> indices;
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  if (fd < 0) return indices;
  // The kernel answers at once, or there is no such answer in this kernel.
  const timeval wait = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  if (Send(fd, device_index)) {
    char buffer[16384];
    ssize_t size;
    do {
      size = recv(fd, buffer, sizeof buffer, 0);
    } while (size > 0 && ReadMessages(buffer, size, indices));
  }
  close(fd);
  return indices;
}

}  // namespace mrd::fabric::verbs
