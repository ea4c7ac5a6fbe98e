#include "client/mapping_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <string>

#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

// A line of /proc/self/maps; proc_pid_maps(5).
struct Area {
  uint64_t start, end, offset, inode;
  unsigned major, minor;
  char rights[5];
};

bool Parse(const std::string& line, Area* area) {
  return sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64,
                &area->start, &area->end, area->rights, &area->offset, &area->major, &area->minor,
                &area->inode) == 7;
}

std::string Hex(uint64_t address) {
  char text[24];
  snprintf(text, sizeof text, "0x%" PRIx64, address);
  return text;
}

absl::Status Refused(const std::string& why, std::string advice) {
  return MakeError(v1::ADDRESS_UNUSABLE, "cannot adopt the buffer: " + why,
                   {.advice = std::move(advice)});
}

absl::Status NothingAt(uint64_t address) {
  return Refused("nothing is mapped at " + Hex(address),
                 "Give the address that mmap returned, and a size that is mapped.");
}

}  // namespace

absl::Status CheckMapping(int fd, const void* addr, uint64_t size, uint64_t offset) {
  struct stat object;
  std::ifstream maps("/proc/self/maps");
  if (!maps || fstat(fd, &object) != 0) return absl::OkStatus();
  const auto begin = reinterpret_cast<uint64_t>(addr);
  // Several areas may cover it: the kernel does not join those that were given different advice.
  uint64_t next = begin;
  bool any = false;
  Area area;
  for (std::string line; std::getline(maps, line);) {
    if (!Parse(line, &area)) continue;
    any = true;
    if (area.end <= next) continue;
    if (area.start > next) return NothingAt(next);
    if (area.rights[3] != 's' || area.inode != object.st_ino ||
        makedev(area.major, area.minor) != object.st_dev) {
      return Refused(Hex(next) + " is not a shared mapping of this descriptor",
                     "Give the address where this descriptor is mapped with MAP_SHARED.");
    }
    const uint64_t mapped = area.offset + (next - area.start);
    if (const uint64_t wanted = offset + (next - begin); mapped != wanted) {
      return Refused(Hex(next) + " is mapped from offset " + std::to_string(mapped) + ", not " +
                         std::to_string(wanted),
                     "Give in AdoptOptions.offset the offset that mmap was given.");
    }
    if (area.end - begin >= size) return absl::OkStatus();
    next = area.end;
  }
  // Without any line: the main thread has ended, whose memory /proc/self shows.
  return any ? NothingAt(next) : absl::OkStatus();
}

}  // namespace mrd::internal
