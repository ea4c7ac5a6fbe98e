// A FUSE file system whose server answers until the first open and never again: whoever then asks
// anything of its file - fstat(2), close(2) - waits for ever.
//
//   mute_fuse DIR     mounts it there, in a mount namespace of its own; others reach DIR/file by
//                     /proc/PID/root. Prints "ready". When it dies, all waits end.
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace {

constexpr uint64_t kFile = 2;

void Must(bool holds, const char* what) {
  if (holds) return;
  perror(what);
  exit(1);
}

fuse_attr Attributes(uint64_t node) {
  fuse_attr attr{};
  attr.ino = node;
  attr.size = node == kFile ? 1 << 20 : 0;
  attr.mode = node == kFile ? S_IFREG | 0666 : S_IFDIR | 0777;
  attr.nlink = 1;
  return attr;
}

class Server {
 public:
  explicit Server(int fd) : fd_(fd) {}

  void Run() {
    alignas(fuse_in_header) char request[1 << 17];
    for (;;) {
      const ssize_t length = read(fd_, request, sizeof request);
      if (length < 0 && errno == EINTR) continue;
      Must(length > 0, "/dev/fuse");
      Handle(*reinterpret_cast<fuse_in_header*>(request));
    }
  }

 private:
  void Handle(const fuse_in_header& request) {
    if (mute_) return;
    switch (request.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 4096;
        return Answer(request, out);
      }
      case FUSE_LOOKUP: {
        fuse_entry_out out{};
        out.nodeid = kFile;
        out.attr = Attributes(kFile);
        return Answer(request, out);
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr = Attributes(request.nodeid);
        return Answer(request, out);
      }
      case FUSE_OPEN:
        mute_ = true;
        return Answer(request, fuse_open_out{});
      default:
        return;
    }
  }

  template <typename Out>
  void Answer(const fuse_in_header& request, const Out& out) {
    struct {
      fuse_out_header header;
      Out out;
    } answer{{sizeof(fuse_out_header) + sizeof out, 0, request.unique}, out};
    Must(write(fd_, &answer, answer.header.len) == answer.header.len, "answer");
  }

  const int fd_;
  bool mute_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  Must(fd >= 0, "open /dev/fuse");
  Must(unshare(CLONE_NEWNS) == 0, "unshare");
  // EINVAL: the root of a chroot that is no mount, of which this cannot be said.
  Must(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 || errno == EINVAL,
       "private mounts");
  Must(mkdir(argv[1], 0755) == 0, "mkdir");
  const std::string options =
      "fd=" + std::to_string(fd) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
  Must(mount("mute", argv[1], "fuse.mute", MS_NOSUID | MS_NODEV, options.c_str()) == 0, "mount");
  puts("ready");
  fflush(stdout);
  Server(fd).Run();
}
