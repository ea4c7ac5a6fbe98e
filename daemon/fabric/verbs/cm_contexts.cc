#include "daemon/fabric/verbs/cm_contexts.h"

#include <algorithm>
#include <utility>

namespace mrd::fabric::verbs {
namespace {

bool Has(ibv_context** list, const ibv_context* context) {
  for (ibv_context** it = list; it != nullptr && *it != nullptr; ++it) {
    if (*it == context) return true;
  }
  return false;
}

}  // namespace

CmContexts::~CmContexts() {
  for (ibv_context** list : old_) api_.FreeDevices(list);
  if (current_ != nullptr) api_.FreeDevices(current_);
}

void CmContexts::Take(ibv_context** list) {
  {
    MutexLock lock(mutex_);
    if (current_ != nullptr) old_.push_back(current_);
    current_ = list;
  }
  FreeOld();
}

void CmContexts::GiveUp(ibv_context* context) {
  MutexLock lock(mutex_);
  given_up_.insert(context);
}

bool CmContexts::IsGivenUp(ibv_context* context) {
  MutexLock lock(mutex_);
  return given_up_.count(context) != 0;
}

void CmContexts::LetGo(ibv_context* context) {
  api_.LetGo(context);  // Before the lists: with the last of them the context may be no more.
  {
    MutexLock lock(mutex_);
    empty_.insert(context);
  }
  FreeOld();
}

bool CmContexts::Needed(ibv_context** list) const {
  for (ibv_context** it = list; *it != nullptr; ++it) {
    if (!Has(current_, *it) && empty_.count(*it) == 0) return true;
  }
  return false;
}

void CmContexts::FreeOld() {
  std::vector<ibv_context**> unneeded;
  {
    MutexLock lock(mutex_);
    const auto first = std::stable_partition(old_.begin(), old_.end(),
                                             [this](ibv_context** list)
                                                 MRD_REQUIRES(mutex_) { return Needed(list); });
    unneeded.assign(first, old_.end());
    old_.erase(first, old_.end());
    const auto listed = [this](ibv_context* context) MRD_REQUIRES(mutex_) {
      return Has(current_, context) ||
             std::any_of(old_.begin(), old_.end(),
                         [context](ibv_context** list) { return Has(list, context); });
    };
    for (auto* contexts : {&given_up_, &empty_}) {
      for (auto it = contexts->begin(); it != contexts->end();) {
        it = listed(*it) ? std::next(it) : contexts->erase(it);
      }
    }
  }
  for (ibv_context** list : unneeded) api_.FreeDevices(list);
}

}  // namespace mrd::fabric::verbs
