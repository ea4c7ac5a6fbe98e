#include "daemon/host/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/log.h"
#include "spdlog/spdlog.h"

namespace mrd::host {
namespace {

struct Expected {
  const char* name;
  const char* unit;
  int type;
  const char* listens;  // The setting of the unit.
};
constexpr Expected kExpected[] = {
    {kRpcSocket, "mrd.socket", SOCK_STREAM, "ListenStream"},
    {kAttachSocket, "mrd-attach.socket", SOCK_SEQPACKET, "ListenSequentialPacket"},
    {kAdminSocket, "mrd-admin.socket", SOCK_SEQPACKET, "ListenSequentialPacket"},
};
constexpr size_t kCount = std::size(kExpected);

int OptionOf(int socket, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(socket, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

// Empty: it is bound to no path.
std::string PathOf(int socket) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) < 0) return "";
  return std::string(address.sun_path, strnlen(address.sun_path, sizeof address.sun_path));
}

// `path`: set where it is right.
absl::Status Check(const Expected& expected, int socket, std::string* path) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the descriptor \"", expected.name, "\" that the service manager passes ",
                     what, "; ", expected.unit, " needs ", expected.listens, "=PATH"));
  };
  if (OptionOf(socket, SO_DOMAIN) != AF_UNIX) return wrong("is no Unix socket");
  if (OptionOf(socket, SO_TYPE) != expected.type) {
    return wrong("is a socket of another type than clients need");
  }
  if (OptionOf(socket, SO_ACCEPTCONN) != 1) return wrong("does not listen (Accept=no)");
  *path = PathOf(socket);
  if (path->empty()) return wrong("has no path");
  return absl::OkStatus();
}

// As the listeners need it: systemd clears O_NONBLOCK of what it passes.
absl::Status MakeOurs(int socket, const std::string& path) {
  const int flags = fcntl(socket, F_GETFL);
  if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0 ||
      listen(socket, SOMAXCONN) < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", path));
  }
  return absl::OkStatus();
}

std::string DirOf(const std::string& path) { return std::filesystem::path(path).parent_path(); }

}  // namespace

absl::StatusOr<std::optional<ipc::SocketDir>> TakeSockets(std::vector<InheritedFd>& inherited) {
  UniqueFd sockets[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    for (InheritedFd& each : inherited) {
      if (each.name != kExpected[i].name || !each.fd) continue;
      if (sockets[i]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the service manager passes two sockets \"", each.name,
            "\": one socket unit alone has this FileDescriptorName, and one Listen... in it"));
      }
      sockets[i] = std::move(each.fd);
    }
  }
  std::erase_if(inherited, [](const InheritedFd& each) { return !each.fd; });
  std::vector<std::string> given, missing, units;
  for (size_t i = 0; i < kCount; ++i) {
    (sockets[i] ? given : missing).push_back(absl::StrCat("\"", kExpected[i].name, "\""));
    if (!sockets[i]) units.push_back(kExpected[i].unit);
  }
  if (given.empty()) return std::nullopt;
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the service manager passes the socket ", absl::StrJoin(given, " and "), " without ",
        absl::StrJoin(missing, " and "), "; start ", absl::StrJoin(units, " and "),
        " (FileDescriptorName=), and name it in Sockets= of mrd.service"));
  }
  std::string paths[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    if (auto good = Check(kExpected[i], sockets[i].get(), &paths[i]); !good.ok()) return good;
  }
  for (const std::string& path : {paths[0], paths[1]}) {
    if (auto safe = ipc::CheckClientsDir(DirOf(path)); !safe.ok()) return safe;
  }
  if (auto safe = ipc::CheckAdminDir(DirOf(paths[2])); !safe.ok()) return safe;
  for (size_t i = 0; i < kCount; ++i) {
    if (auto ours = MakeOurs(sockets[i].get(), paths[i]); !ours.ok()) return ours;
  }
  return ipc::SocketDir::Given(DirOf(paths[0]), paths[2], std::move(sockets[0]),
                               std::move(sockets[1]), std::move(sockets[2]));
}

void CloseUnknown(std::vector<InheritedFd> inherited, broker::ledger::Store& store) {
  for (const InheritedFd& each : inherited) {
    spdlog::warn("the service manager passes a descriptor \"{}\" that mrd does not know: closed",
                 log::Escaped(each.name, 64));
    store.Remove(each.name);
  }
}

}  // namespace mrd::host
