// Memory that can be passed by descriptor and pinned: made, sealed, mapped and populated.
#ifndef MRD_CLIENT_SHARED_MEMORY_H_
#define MRD_CLIENT_SHARED_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/unique_fd.h"

namespace mrd::internal {

inline constexpr uint64_t kBasePage = 4096;
inline constexpr uint64_t kHugePage = 2 * 1024 * 1024;
// More than any address space has; keeps rounding up to whole pages from overflowing.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 47;

// A descriptor and, where `owned`, its mapping, undone with it.
class SharedMemory final {
 public:
  SharedMemory() = default;
  SharedMemory(UniqueFd fd, void* data, uint64_t size, uint64_t page_size, bool owned)
      : fd_(std::move(fd)), data_(data), size_(size), page_size_(page_size), owned_(owned) {}
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) = delete;
  ~SharedMemory();

  int fd() const { return fd_.get(); }
  void* data() const { return data_; }
  uint64_t size() const { return size_; }  // Bytes mapped: whole pages.
  uint64_t page_size() const { return page_size_; }

 private:
  UniqueFd fd_;
  void* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t page_size_ = kBasePage;
  bool owned_ = false;
};

enum class PageKind { kBase4K, kTransparentHuge, kHuge2M };

// A new memfd of at least `size` bytes, rounded up to whole pages, zeroed, every page present,
// sealed against change of size, mapped read-write in the library's window. `name` is what
// /proc/PID/maps shows.
absl::StatusOr<SharedMemory> CreateSharedMemory(uint64_t size, PageKind pages, const char* name);

// Maps `size` bytes of `fd` from `offset` in the library's window.
absl::StatusOr<SharedMemory> MapSharedMemory(UniqueFd fd, uint64_t offset, uint64_t size);

// What pages the object behind `fd` consists of: of hugetlbfs its huge pages, else base pages.
uint64_t PageSizeOf(int fd);

// By its name in /proc; false where that is not there.
bool IsDmaBuf(int fd);

// The size of the object behind `fd`, a dma-buf's too. 0: it has none.
uint64_t SizeOf(int fd);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_SHARED_MEMORY_H_
