// What one thread hands to another through gRPC's completion queue, said to ThreadSanitizer, which
// does not see into Debian's libgrpc. Nothing in other builds.
#ifndef MRD_DAEMON_SERVICE_HANDOFF_H_
#define MRD_DAEMON_SERVICE_HANDOFF_H_

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace mrd::service {

// Before `tag` is given to gRPC.
inline void HandOver([[maybe_unused]] void* tag) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(tag);
#endif
}

// After it came out of the queue.
inline void TakeOver([[maybe_unused]] void* tag) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(tag);
#endif
}

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_HANDOFF_H_
