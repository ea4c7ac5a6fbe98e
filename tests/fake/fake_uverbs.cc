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

namespace {

// REQUIRES: not those of regions.
std::set<uint32_t>& HandlesOf(FakeUverbs::Context& context, UverbsObject object) {
  return object == UverbsObject::kPd   ? context.pds
         : object == UverbsObject::kQp ? context.qps
                                       : context.cqs;
}

}  // namespace

void FakeUverbs::Put(int fd, Context context) {
  MutexLock lock(mutex_);
  for (const auto& [handle, facts] : context.mrs) next_ = std::max(next_, handle + 1);
  contexts_[fd] = std::move(context);
}

void FakeUverbs::Change(int fd, const std::function<void(Context&)>& change) {
  {
    MutexLock lock(mutex_);
    change(contexts_[fd]);
  }
  Changed();
}

uint32_t FakeUverbs::NewHandle() {
  MutexLock lock(mutex_);
  return next_++;
}

FakeUverbs::Context FakeUverbs::Get(int fd) {
  MutexLock lock(mutex_);
  return contexts_[fd];
}

int FakeUverbs::busy() {
  MutexLock lock(mutex_);
  return busy_;
}

bool FakeUverbs::LoadLocked(int fd) {
  const int number = FakeKernel::ContextOf(fd);
  if (number < 0) return false;
  Context& context = contexts_[fd] = {};
  for (const FakeKernel::Object& object : kernel_->Of(number)) {
    if (object.pd != 0) context.pd_of[object.handle] = object.pd;
    if (object.type == UverbsObject::kMr) {
      context.mrs[object.handle] = object.facts;
    } else {
      HandlesOf(context, object.type).insert(object.handle);
    }
  }
  return true;
}

FakeUverbs::Context* FakeUverbs::FindLocked(const UverbsContext& context, int* error) {
  if (kernel_ != nullptr && !LoadLocked(context.fd)) contexts_.erase(context.fd);
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
    const auto& handles = HandlesOf(*found, object);
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
  const int error = DestroyIn(context, object, handle);
  if (error == 0) Changed();
  return error;
}

Result<NewMr> FakeUverbs::RegMr(const UverbsContext& context, const MrWish& wish) {
  auto made = RegMrIn(context, wish);
  if (made.ok()) Changed();
  return made;
}

int FakeUverbs::DestroyIn(const UverbsContext& context, UverbsObject object, uint32_t handle) {
  MutexLock lock(mutex_);
  int error;
  Context* const found = FindLocked(context, &error);
  if (!found) return error;
  if (kernel_ != nullptr && object != UverbsObject::kPd) kernel_->End(handle);
  switch (object) {
    case UverbsObject::kPd:
      for (const auto& [user, pd] : found->pd_of) {
        if (pd != handle) continue;
        ++busy_;
        return EBUSY;
      }
      if (kernel_ != nullptr) kernel_->End(handle);
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

Result<NewMr> FakeUverbs::RegMrIn(const UverbsContext& context, const MrWish& wish) {
  MutexLock lock(mutex_);
  int error;
  Context* const found = FindLocked(context, &error);
  if (!found) return {{}, error};
  if (!found->takes_registrations) return {{}, EINVAL};
  if (found->pds.count(wish.pd) == 0) return {{}, ENOENT};
  MrFacts facts{.length = wish.length, .iova = wish.iova};
  const uint32_t handle = kernel_ == nullptr ? next_++
                                             : kernel_->Make(FakeKernel::ContextOf(context.fd),
                                                             UverbsObject::kMr, wish.pd, facts);
  facts.lkey = facts.rkey = FakeKernel::KeyOf(handle);
  found->mrs[handle] = facts;
  found->pd_of[handle] = wish.pd;
  return {{handle, facts.lkey, facts.rkey}, 0};
}

}  // namespace mrd::fake
