#include "daemon/host/metrics/listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace mrd::host {
namespace {

constexpr char kUnix[] = "unix:";
constexpr mode_t kMode = 0660;
constexpr char kForms[] = "127.0.0.1:PORT, [::1]:PORT, localhost:PORT or unix:PATH";

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::optional<uint16_t> PortOf(const std::string& text) {
  uint32_t port;
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &port) || port > UINT16_MAX) return std::nullopt;
  return static_cast<uint16_t>(port);
}

// The text of an error; empty: `address` is set.
std::string ParseUnix(const std::string& path, Address* address) {
  auto* un = reinterpret_cast<sockaddr_un*>(&address->storage);
  if (path.empty() || path[0] != '/') {
    return absl::StrCat("expected an absolute path after unix:, not \"", path, "\"");
  }
  if (path.size() >= sizeof un->sun_path) {
    return absl::StrCat("the path of a socket has at most ", sizeof un->sun_path - 1,
                        " bytes; this one has ", path.size());
  }
  un->sun_family = AF_UNIX;
  memcpy(un->sun_path, path.data(), path.size());
  address->length = sizeof *un;
  return "";
}

std::string ParseInet(const std::string& text, Address* address) {
  const std::string wrong = absl::StrCat("expected ", kForms, ", not \"", text, "\"");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  const auto port = PortOf(text.substr(colon + 1));
  if (!port) return wrong;
  std::string host = text.substr(0, colon);
  bool loopback;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address->storage);
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &in6->sin6_addr) != 1) {
      return wrong;
    }
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(*port);
    address->length = sizeof *in6;
    loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
  } else {
    if (host == "localhost") host = "127.0.0.1";
    auto* in = reinterpret_cast<sockaddr_in*>(&address->storage);
    if (inet_pton(AF_INET, host.c_str(), &in->sin_addr) != 1) return wrong;
    in->sin_family = AF_INET;
    in->sin_port = htons(*port);
    address->length = sizeof *in;
    loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  if (loopback) return "";
  return absl::StrCat(
      host, " is not an address of this host alone: metrics name users and have no password. Give ",
      kForms, "; to reach it from elsewhere put a proxy that asks who comes in front of it");
}

std::string Parse(const std::string& text, Address* address) {
  if (absl::StartsWith(text, kUnix)) return ParseUnix(text.substr(strlen(kUnix)), address);
  return ParseInet(text, address);
}

absl::Status Failed(const std::string& text, const std::string& advice) {
  return absl::ErrnoToStatus(
      errno, absl::StrCat("cannot serve metrics at ", text, " (--metrics-listen; ", advice, ")"));
}

// Removes a socket at `path` that nobody listens on.
absl::Status RemoveStale(const Address& address, const std::string& path) {
  struct stat found;
  if (lstat(path.c_str(), &found) < 0) return absl::OkStatus();  // bind(2) will say.
  if (!S_ISSOCK(found.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serve metrics at ", path,
                     " (--metrics-listen): there is a file that is no socket; ",
                     "remove it, or give another path"));
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), address.get(), address.length) == 0 || errno == EAGAIN) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot serve metrics at ", path, " (--metrics-listen): a process listens there already; ",
        "end it, or give another path"));
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

// With the port that it has got.
std::string NameOf(int socket, const std::string& text) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length);
  uint16_t port = 0;
  if (bound.ss_family == AF_INET) port = reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  if (bound.ss_family == AF_INET6) port = reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port;
  if (port == 0) return text;
  return absl::StrCat(text.substr(0, text.rfind(':')), ":", ntohs(port));
}

}  // namespace

std::string CheckListenAddress(const std::string& text) {
  Address ignored;
  return Parse(text, &ignored);
}

absl::StatusOr<ListenSocket> ListenSocket::Open(const std::string& text) {
  Address address;
  if (const std::string wrong = Parse(text, &address); !wrong.empty()) {
    return absl::InvalidArgumentError(wrong);
  }
  const bool in_files = address.storage.ss_family == AF_UNIX;
  const std::string path = in_files ? text.substr(strlen(kUnix)) : "";
  if (in_files) {
    if (auto free = RemoveStale(address, path); !free.ok()) return free;
  }
  ListenSocket made;
  made.socket.reset(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.socket) return Failed(text, "does this kernel have the address family?");
  const int on = 1;
  if (!in_files) setsockopt(made.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Of a socket that is not bound: the mode of the file that bind(2) makes, umask aside. It is
  // never there with a wider one.
  if (in_files) fchmod(made.socket.get(), kMode);
  if (bind(made.socket.get(), address.get(), address.length) < 0) {
    return Failed(text, in_files ? "its directory must be there and mrd's to write"
                                 : "another port may be free; ss -ltnp shows who has this one");
  }
  if (in_files) {
    made.path_ = path;
    made.file_.reset(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    // By its descriptor: who may write to the directory may have laid a link to another file there.
    struct stat there;
    if (fstat(made.file_.get(), &there) < 0 || !S_ISSOCK(there.st_mode) ||
        chmod(absl::StrCat("/proc/self/fd/", made.file_.get()).c_str(), kMode) < 0) {
      return Failed(text, "the mode of the socket");
    }
  }
  if (listen(made.socket.get(), 16) < 0) return Failed(text, "another port may be free");
  made.where = NameOf(made.socket.get(), text);
  return made;
}

ListenSocket::~ListenSocket() {
  if (!file_) return;
  struct stat made, found;
  const bool same = fstat(file_.get(), &made) == 0 && lstat(path_.c_str(), &found) == 0 &&
                    made.st_dev == found.st_dev && made.st_ino == found.st_ino;
  if (same) unlink(path_.c_str());
}

}  // namespace mrd::host
