// Buffer: memory that can be registered, because the daemon can be given its descriptor. Made by
// Client::CreateBuffer, or a caller's own by Client::AdoptBuffer.
//
// A Buffer owns its descriptor and, unless it was adopted with a mapping of the caller's, its
// mapping. Regions on it share that ownership: the memory stays mapped, and the daemon keeps its
// descriptor, until the Buffer and the last Region on it are gone.
//
// Threads: const members may be called at once from several; moving and destroying may not overlap
// with anything.
#ifndef MRD_CLIENT_BUFFER_H_
#define MRD_CLIENT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace mrd {

namespace internal {
class BufferState;
}

enum class Pages {
  kBase4K,
  // Transparent huge pages where the kernel gives them to shared memory
  // (/sys/kernel/mm/transparent_hugepage/shmem_enabled: "advise" or more), else base pages. The
  // mapping is aligned to 2 MiB.
  kTransparentHuge,
  // 2 MiB pages of the kernel's pool (sysctl vm.nr_hugepages), or no buffer.
  kHuge2M,
};

struct BufferOptions {
  Pages pages = Pages::kBase4K;
  const char* name = "mrd";  // For people: /proc/PID/maps shows it. At most 249 bytes.
};

struct AdoptOptions {
  // Where the mapping begins in the object behind the descriptor, in bytes: what mmap(2) was given.
  // A multiple of the object's page size.
  uint64_t offset = 0;
  // Make every page present (MADV_POPULATE_WRITE; contents stay). The daemon refuses ranges with
  // absent pages.
  bool populate = true;
  // Seal the object against shrinking (F_SEAL_SHRINK), which the daemon asks of memfds. Off by
  // default, since it cannot be undone and holds for everybody who has the object.
  bool seal = false;
};

class Buffer final {
 public:
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  // Where this process has it. Page-aligned.
  void* data() const;
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data()); }

  // Bytes, as asked for.
  uint64_t size() const;

  // Bytes that are mapped: size() rounded up to whole pages. All of it may be used and registered.
  uint64_t mapped_size() const;

  // Bytes of a page: 4,096, or what hugetlbfs uses.
  uint64_t page_size() const;

  // The library's descriptor, valid as long as this. The caller does not close it.
  int fd() const;

  // Has the daemon close its descriptor now; a session may hold AttachLimits.max_buffers of them.
  // Regions stay, and a later registration passes the descriptor again. Not while another thread
  // registers this buffer: its call may fail with BUFFER_UNKNOWN. See
  // RegisterOptions::release_after.
  absl::Status Release() const;

 private:
  friend class Client;
  explicit Buffer(std::shared_ptr<internal::BufferState> state);

  std::shared_ptr<internal::BufferState> state_;
};

}  // namespace mrd

#endif  // MRD_CLIENT_BUFFER_H_
