#include "tests/fake/fake_uverbs.h"

#include <errno.h>

#include <algorithm>
#include <utility>

namespace mrd::fake {

using fabric::verbs::HandleList;
using fabric::verbs::MrFacts;
using fabric::verbs::MrWish;
using fabric::verbs::NewMr;
using fabric::verbs::Result;
using fabric::verbs::UverbsContext;
using fabric::verbs::UverbsObject;

void FakeUverbs::Put(int fd, Context context) {
  MutexLock lock(mutex_);
  contexts_[fd] = std::move(context);
}

FakeUverbs::Context FakeUverbs::Get(int fd) {
  MutexLock lock(mutex_);
  return contexts_[fd];
}

int FakeUverbs::busy() {
  MutexLock lock(mutex_);
  return busy_;
}

FakeUverbs::Context* FakeUverbs::FindLocked(const UverbsContext& context, int* error) {
  const auto found = contexts_.find(context.fd);
  *error = 0;
  if (found == contexts_.end()) {
    *error = ENOTTY;
  } else if (context.driver_id != kDriver) {
    *error = EINVAL;
  } else if (found->second.removed) {
    *error = EIO;
  }
  return *error == 0 ? &found->second : nullptr;
}

bool FakeUverbs::IsThere(const UverbsContext& context, const std::string&) {
  MutexLock lock(mutex_);
  return !contexts_[context.fd].unplugged;
}

Result<HandleList> FakeUverbs::Handles(const UverbsContext& context, UverbsObject object) {
  MutexLock lock(mutex_);
  int error;
  Context* const found = FindLocked(context, &error);
  if (!found) return {{}, error};
  HandleList list;
  if (object == UverbsObject::kMr) {
    for (const auto& [handle, facts] : found->mrs) list.handles.push_back(handle);
  } else {
    const auto& handles = object == UverbsObject::kPd   ? found->pds
                          : object == UverbsObject::kQp ? found->qps
                                                        : found->cqs;
    list.handles.assign(handles.begin(), handles.end());
  }
  list.all = list.handles.size() < found->lists_most;
  if (!list.all) list.handles.resize(found->lists_most);
  return {std::move(list), 0};
}

Result<MrFacts> FakeUverbs::QueryMr(const UverbsContext& context, uint32_t handle) {
  MutexLock lock(mutex_);
  int error;
  Context* const found = FindLocked(context, &error);
  if (!found) return {{}, error};
  const auto mr = found->mrs.find(handle);
  if (mr == found->mrs.end()) return {{}, ENOENT};
  return {mr->second, 0};
}

int FakeUverbs::Destroy(const UverbsContext& context, UverbsObject object, uint32_t handle) {
  MutexLock lock(mutex_);
  int error;
  Context* const found = FindLocked(context, &error);
  if (!found) return error;
  switch (object) {
    case UverbsObject::kPd:
      for (const auto& [user, pd] : found->pd_of) {
        if (pd != handle) continue;
        ++busy_;
        return EBUSY;
      }
      return found->pds.erase(handle) != 0 ? 0 : ENOENT;
    case UverbsObject::kMr:
      found->pd_of.erase(handle);
      return found->mrs.erase(handle) != 0 ? 0 : ENOENT;
    case UverbsObject::kQp:
      found->pd_of.erase(handle);
      return found->qps.erase(handle) != 0 ? 0 : ENOENT;
    case UverbsObject::kCq:
      return found->cqs.erase(handle) != 0 ? 0 : ENOENT;
  }
  return EINVAL;
}

Result<NewMr> FakeUverbs::RegMr(const UverbsContext& context, const MrWish& wish) {
  MutexLock lock(mutex_);
  int error;
  Context* const found = FindLocked(context, &error);
  if (!found) return {{}, error};
  if (!found->takes_registrations) return {{}, EINVAL};
  if (found->pds.count(wish.pd) == 0) return {{}, ENOENT};
  const uint32_t handle = next_++;
  found->mrs[handle] = {handle << 8, handle << 8, wish.length, wish.iova};
  found->pd_of[handle] = wish.pd;
  return {{handle, handle << 8, handle << 8}, 0};
}

}  // namespace mrd::fake
