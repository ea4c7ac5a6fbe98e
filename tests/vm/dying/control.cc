#include "tests/vm/dying/control.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dying {

Control* MapControl(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const mapped = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return mapped == MAP_FAILED ? nullptr : static_cast<Control*>(mapped);
}

}  // namespace dying
