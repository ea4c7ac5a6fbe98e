#include "tests/vm/probe/kernel_counts.h"

#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/unique_fd.h"

namespace probe {
namespace {

// Calls visit(type, payload) for each attribute.
template <typename Visit>
void EachAttribute(std::string_view data, Visit&& visit) {
  while (data.size() >= NLA_HDRLEN) {
    nlattr attribute;
    memcpy(&attribute, data.data(), sizeof attribute);
    if (attribute.nla_len < NLA_HDRLEN || attribute.nla_len > data.size()) return;
    visit(attribute.nla_type & NLA_TYPE_MASK,
          data.substr(NLA_HDRLEN, attribute.nla_len - NLA_HDRLEN));
    data.remove_prefix(std::min<size_t>(data.size(), NLA_ALIGN(attribute.nla_len)));
  }
}

// The "mr" of a device's summary, which is a table of names and counts.
uint64_t RegionsOfDevice(std::string_view attributes) {
  uint64_t regions = 0;
  EachAttribute(attributes, [&](int type, std::string_view table) {
    if (type != RDMA_NLDEV_ATTR_RES_SUMMARY) return;
    EachAttribute(table, [&](int, std::string_view entry) {
      bool is_mr = false;
      uint64_t count = 0;
      EachAttribute(entry, [&](int field, std::string_view value) {
        if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME) {
          is_mr = value == std::string_view("mr\0", 3);
        } else if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR &&
                   value.size() == sizeof count) {
          memcpy(&count, value.data(), sizeof count);
        }
      });
      if (is_mr) regions += count;
    });
  });
  return regions;
}

// False: that was the last of the answer.
bool ReadMessages(std::string_view data, uint64_t& regions) {
  while (data.size() >= NLMSG_HDRLEN) {
    nlmsghdr header;
    memcpy(&header, data.data(), sizeof header);
    if (header.nlmsg_len < NLMSG_HDRLEN || header.nlmsg_len > data.size()) return false;
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return false;
    regions += RegionsOfDevice(data.substr(NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN));
    data.remove_prefix(std::min<size_t>(data.size(), NLMSG_ALIGN(header.nlmsg_len)));
  }
  return true;
}

}  // namespace

absl::StatusOr<uint64_t> KernelRegions() {
  const mrd::internal::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "NETLINK_RDMA");
  const timeval wait = {5, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  nlmsghdr request = {};
  request.nlmsg_len = sizeof request;
  request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET);
  request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  if (send(fd.get(), &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request)) {
    return absl::ErrnoToStatus(errno, "RDMA_NLDEV_CMD_RES_GET");
  }
  uint64_t regions = 0;
  for (;;) {
    char buffer[16384];
    const ssize_t size = recv(fd.get(), buffer, sizeof buffer, 0);
    if (size <= 0) return absl::ErrnoToStatus(errno, "the answer of RDMA netlink");
    if (!ReadMessages({buffer, static_cast<size_t>(size)}, regions)) return regions;
  }
}

absl::StatusOr<uint64_t> KernelPinnedBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string key; status >> key;) {
    uint64_t kib = 0;
    if (key == "VmPin:" && status >> kib) return kib << 10;
  }
  return absl::NotFoundError(absl::StrCat("no VmPin of process ", pid));
}

}  // namespace probe
