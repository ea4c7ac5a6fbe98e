// Brings the pages of a mapping into being.
#ifndef MRD_CLIENT_POPULATE_H_
#define MRD_CLIENT_POPULATE_H_

#include <cstdint>

namespace mrd::internal {

// Makes every page of a shared mapping present, without changing what it holds; in several threads
// where there is much to do. Returns 0 or the errno of madvise(2), MADV_POPULATE_WRITE: ENOMEM or
// EFAULT (no memory, no huge pages; pages made so far stay), EINVAL (not on this kernel, before
// 5.14, or not for this kind of mapping).
int Populate(void* data, uint64_t size);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_POPULATE_H_
