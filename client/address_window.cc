#include "client/address_window.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <string>

#include "client/local_error.h"

// Two questions, not one after the other: headers of other libraries define __has_feature for g++
// too, which answers no.
#if defined(__SANITIZE_THREAD__)
#define MRD_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MRD_THREAD_SANITIZER 1
#endif
#endif

namespace mrd::internal {
namespace {

// A try that meets another mapping is repeated elsewhere. With nine tenths of the window taken, a
// hundred fail by bad luck once in 40,000 mappings.
constexpr int kTries = 100;

}  // namespace

AddressWindow WindowOfProgram() {
#ifdef MRD_THREAD_SANITIZER
  return {0x7e8000000000, 0x7effffffffff};
#else
  return {0x650000000000, 0x6fffffffffff};
#endif
}

uint64_t PickAddress(const AddressWindow& window, uint64_t size, uint64_t alignment,
                     uint64_t random) {
  const uint64_t first = (window.first + alignment - 1) & ~(alignment - 1);
  const uint64_t room = window.last - window.first + 1;
  if (size > room || first > window.last + 1 - size) return 0;
  const uint64_t places = (window.last + 1 - size - first) / alignment + 1;
  return first + random % places * alignment;
}

absl::StatusOr<void*> MapInWindow(const AddressWindow& window, int fd, uint64_t size,
                                  uint64_t alignment, int protection, off_t offset) {
  for (int i = 0; i < kTries; ++i) {
    uint64_t random = 0;
    (void)!getrandom(&random, sizeof(random), 0);  // 8 bytes are never cut short.
    const uint64_t address = PickAddress(window, size, alignment, random);
    if (address == 0) break;
    void* const wanted = reinterpret_cast<void*>(address);
    void* const mapped =
        mmap(wanted, size, protection, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, offset);
    if (mapped == wanted) return mapped;
    if (mapped != MAP_FAILED) {
      munmap(mapped, size);  // A kernel before 4.17 takes the address for a hint.
      continue;
    }
    if (errno == EEXIST) continue;
    const std::string advice =
        errno == EACCES   ? "Its descriptor must be open for reading and writing."
        : errno == ENODEV ? "The descriptor is not of memory that can be mapped."
                          : "";
    return LocalError(absl::StatusCode::kResourceExhausted,
                      "cannot map " + std::to_string(size) + " bytes", errno, advice);
  }
  return LocalError(absl::StatusCode::kResourceExhausted,
                    "cannot map " + std::to_string(size) +
                        " bytes: no room among the addresses that every device can register",
                    ENOMEM, "Unmap buffers that are not needed.");
}

}  // namespace mrd::internal
