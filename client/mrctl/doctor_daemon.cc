// What doctor finds out about the daemon's sockets and devices.
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "client/mrctl/doctor.h"
#include "daemon/broker/policy/glob.h"

namespace mrctl {
namespace {

using mrd::v1::Device;

std::string GroupName(gid_t gid) {
  char buffer[4096];
  group entry;
  group* found = nullptr;
  if (getgrgid_r(gid, &entry, buffer, sizeof buffer, &found) == 0 && found) return found->gr_name;
  return "gid " + std::to_string(gid);
}

std::string UserName(uid_t uid) {
  char buffer[4096];
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found) return found->pw_name;
  return "uid " + std::to_string(uid);
}

bool InGroup(gid_t gid) {
  if (getegid() == gid) return true;
  gid_t groups[65536 / sizeof(gid_t)];
  const int count = getgroups(sizeof groups / sizeof *groups, groups);
  for (int i = 0; i < count; ++i) {
    if (groups[i] == gid) return true;
  }
  return false;
}

std::string Describe(const struct stat& st) {
  char mode[16];
  snprintf(mode, sizeof mode, "%04o", st.st_mode & 07777);
  return "mode " + std::string(mode) + ", " + UserName(st.st_uid) + ":" + GroupName(st.st_gid);
}

std::string IntoGroup(const std::string& group) {
  if (group == "root")
    return "Start mrd with --socket-group GROUP, and put the user into that group.";
  if (UserName(geteuid()).rfind("uid ", 0) == 0)
    return "Run the program with group " + group + " too.";
  return "usermod -aG " + group + " " + UserName(geteuid()) + ", then log in anew.";
}

mrd::v1::Finding CheckSocket(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    return Problem("sockets", path + ": " + strerror(errno),
                   errno == EACCES ? "Let this user into the directory: its group and mode."
                                   : "Start mrd, or name its directory with --socket-dir.");
  }
  if (!S_ISSOCK(st.st_mode)) {
    return Problem("sockets", path + " is no socket", "Name the directory of mrd's sockets.");
  }
  if (access(path.c_str(), W_OK) == 0) return Good("sockets", path + " (" + Describe(st) + ")");
  const bool by_group = (st.st_mode & S_IWGRP) != 0;
  return Problem(
      "sockets",
      "user " + UserName(geteuid()) + " may not connect to " + path + " (" + Describe(st) + ")",
      by_group ? IntoGroup(GroupName(st.st_gid))
               : "Start mrd with --socket-mode 0660 and --socket-group.");
}

mrd::v1::Finding CheckGroup(const struct stat& socket) {
  const std::string group = GroupName(socket.st_gid);
  if (geteuid() == 0) return Good("group", "root needs no group");
  if (InGroup(socket.st_gid)) return Good("group", "this process is in group " + group);
  if ((socket.st_mode & S_IWOTH) != 0) return Good("group", "the socket is for everybody");
  return Warning("group", "this process is not in group " + group, IntoGroup(group));
}

}  // namespace

Findings CheckSockets(const std::string& dir) {
  Findings findings;
  struct stat st;
  if (stat(dir.c_str(), &st) != 0) {
    return {Problem("directory", dir + ": " + strerror(errno),
                    "Start mrd; in a container mount the host's " + dir +
                        "; elsewhere name it with --socket-dir or MRD_SOCKET_DIR.")};
  }
  if ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0) {
    findings.push_back(Problem("directory",
                               dir + " (" + Describe(st) +
                                   ") lets everybody replace "
                                   "the sockets",
                               "chmod o-w " + dir + ", or chmod +t " + dir));
  } else {
    findings.push_back(Good("directory", dir + " (" + Describe(st) + ")"));
  }
  for (const char* name : {"/attach.sock", "/mrd.sock"}) {
    findings.push_back(CheckSocket(dir + name));
  }
  if (stat((dir + "/attach.sock").c_str(), &st) == 0) findings.push_back(CheckGroup(st));
  if (stat((dir + "-admin").c_str(), &st) == 0 && (st.st_mode & 077) != 0) {
    findings.push_back(Problem("admin directory",
                               dir + "-admin (" + Describe(st) + ") is open to others",
                               "chmod 0700 " + dir + "-admin: who reaches it is an admin."));
  }
  return findings;
}

pid_t DaemonPid(const std::string& dir) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = dir + "/attach.sock";
  if (path.size() >= sizeof address.sun_path) return 0;
  memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return 0;
  ucred daemon = {};
  socklen_t length = sizeof daemon;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &daemon, &length) != 0) {
    daemon.pid = 0;
  }
  close(fd);
  return daemon.pid;
}

Findings CheckAllowed(const mrd::v1::AppliedPolicy& policy, const std::vector<Device>& devices) {
  if (policy.devices().empty() || devices.empty()) return {};
  for (const Device& device : devices) {
    for (const std::string& glob : policy.devices()) {
      if (mrd::policy::NameMatches(glob, device.name())) return {};
    }
  }
  return {Problem("policy",
                  "rule \"" + policy.rule() +
                      "\" lets this user use no device that is here, only " +
                      absl::StrJoin(policy.devices(), ", "),
                  "Let the operator add them to the rule's devices; mrctl devices shows them.")};
}

Findings CheckDevices(const std::string& fabric, const std::vector<Device>& devices) {
  if (fabric == "soft") {
    return {Told("devices",
                 "fabric soft: in the daemon's memory, without hardware. To develop "
                 "against; for RDMA start mrd without --fabric soft")};
  }
  if (devices.empty()) {
    return {Problem("devices", "the daemon has none",
                    "rdma link shows what the kernel has; load the device's driver, or start mrd "
                    "with --fabric soft to develop without one.")};
  }
  Findings findings;
  bool active = false;
  for (const Device& device : devices) {
    const bool up = device.state() == Device::ACTIVE;
    active |= up;
    const std::string name = "device " + device.name();
    if (!up) {
      findings.push_back(Warning(name, "no port is active: memory registers, connections fail",
                                 "rdma link show " + device.name() +
                                     "; bring its network interface up, or look at the cable."));
    } else if (device.endpoints() && device.addresses().empty()) {
      findings.push_back(Warning(name, "active, without an IP address: nobody can connect to it",
                                 "ip address add ADDRESS/PREFIX dev INTERFACE"));
    } else {
      std::string text = "active";
      for (const std::string& address : device.addresses()) text += ", " + address;
      findings.push_back(Good(name, text));
    }
  }
  if (!active) {
    findings.push_back(Problem("link", "no device has an active port",
                               "Connections need one: see the devices above."));
  }
  return findings;
}

}  // namespace mrctl
