// The contexts of librdmacm that this process holds, and when each is let go of.
#ifndef MRD_DAEMON_FABRIC_VERBS_CM_CONTEXTS_H_
#define MRD_DAEMON_FABRIC_VERBS_CM_CONTEXTS_H_

#include <set>
#include <vector>

#include "daemon/fabric/verbs/api.h"
#include "daemon/mutex.h"

namespace mrd::fabric::verbs {

// rdma_get_devices hands out all contexts at once and counts each list that has one; they are the
// same ones each time. So a new list is taken before the one before it is freed (nobody else's
// context is ever without a list), and that one is freed when nothing lives on those of its
// contexts that the new one lacks. Thread safety: any thread.
class CmContexts {
 public:
  explicit CmContexts(Api& api) : api_(api) {}
  ~CmContexts();
  CmContexts(const CmContexts&) = delete;
  CmContexts& operator=(const CmContexts&) = delete;

  // A list of GetDevices, or null where it has none: takes the place of the one before.
  void Take(ibv_context** list) MRD_EXCLUDES(mutex_);
  // The context's device is given up; a list that has it still is no reason to open it anew.
  void GiveUp(ibv_context* context) MRD_EXCLUDES(mutex_);
  bool IsGivenUp(ibv_context* context) MRD_EXCLUDES(mutex_);
  // Nothing is left on a context that was given up. May block.
  void LetGo(ibv_context* context) MRD_EXCLUDES(mutex_);

 private:
  // Frees lists that nobody needs.
  void FreeOld() MRD_EXCLUDES(mutex_);
  bool Needed(ibv_context** list) const MRD_REQUIRES(mutex_);

  Api& api_;
  Mutex mutex_;
  ibv_context** current_ MRD_GUARDED_BY(mutex_) = nullptr;
  std::vector<ibv_context**> old_ MRD_GUARDED_BY(mutex_);
  // Of those in a list, so that no other context can have the address.
  std::set<ibv_context*> given_up_ MRD_GUARDED_BY(mutex_);
  std::set<ibv_context*> empty_ MRD_GUARDED_BY(mutex_);  // Given up, and let go of.
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_CM_CONTEXTS_H_
