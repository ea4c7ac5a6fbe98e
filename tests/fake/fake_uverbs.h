// What an earlier process left in the kernel, for tests of its adoption.
#ifndef MRD_TESTS_FAKE_FAKE_UVERBS_H_
#define MRD_TESTS_FAKE_FAKE_UVERBS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fabric/verbs/uverbs.h"
#include "daemon/mutex.h"
#include "tests/fake/fake_kernel.h"

namespace mrd::fake {

// Contexts, by the number of the descriptor that stands for each; those of a FakeKernel, where
// there is one. Thread-safe.
class FakeUverbs final : public fabric::verbs::Uverbs {
 public:
  static constexpr uint32_t kDriver = 14;

  struct Context {
    std::set<uint32_t> pds, qps, cqs;
    std::map<uint32_t, fabric::verbs::MrFacts> mrs;
    std::map<uint32_t, uint32_t> pd_of;  // Of regions and queue pairs.
    bool removed = false;
    bool unplugged = false;  // And what was made there goes on.
    bool takes_registrations = true;
    size_t lists_most = 100;  // Handles of a kind.
  };

  explicit FakeUverbs(FakeKernel* kernel = nullptr) : kernel_(kernel) {}

  void Put(int fd, Context context) MRD_EXCLUDES(mutex_);
  // What a process does with a context that is its own; one that is not there begins empty.
  void Change(int fd, const std::function<void(Context&)>& change) MRD_EXCLUDES(mutex_);
  // Called after each change, whoever makes it. Before the first.
  void OnChange(std::function<void()> changed) { changed_ = std::move(changed); }
  // Of an object that is new.
  uint32_t NewHandle() MRD_EXCLUDES(mutex_);
  Context Get(int fd) MRD_EXCLUDES(mutex_);
  // How often something was destroyed while something else used it: an error of the caller's.
  int busy() MRD_EXCLUDES(mutex_);

  bool IsThere(const fabric::verbs::UverbsContext& context, const std::string& device) override;
  fabric::verbs::Result<fabric::verbs::HandleList> Handles(
      const fabric::verbs::UverbsContext& context, fabric::verbs::UverbsObject object) override;
  fabric::verbs::Result<fabric::verbs::MrFacts> QueryMr(const fabric::verbs::UverbsContext& context,
                                                        uint32_t handle) override;
  int Destroy(const fabric::verbs::UverbsContext& context, fabric::verbs::UverbsObject object,
              uint32_t handle) override;
  fabric::verbs::Result<fabric::verbs::NewMr> RegMr(const fabric::verbs::UverbsContext& context,
                                                    const fabric::verbs::MrWish& wish) override;

 private:
  // Null: with `error`.
  Context* FindLocked(const fabric::verbs::UverbsContext& context, int* error) MRD_REQUIRES(mutex_);
  int DestroyIn(const fabric::verbs::UverbsContext& context, fabric::verbs::UverbsObject object,
                uint32_t handle) MRD_EXCLUDES(mutex_);
  fabric::verbs::Result<fabric::verbs::NewMr> RegMrIn(const fabric::verbs::UverbsContext& context,
                                                      const fabric::verbs::MrWish& wish)
      MRD_EXCLUDES(mutex_);
  void Changed() const {
    if (changed_) changed_();
  }

  // As the kernel has it. False: it is no context.
  bool LoadLocked(int fd) MRD_REQUIRES(mutex_);

  FakeKernel* const kernel_;
  Mutex mutex_;
  std::map<int, Context> contexts_ MRD_GUARDED_BY(mutex_);
  int busy_ MRD_GUARDED_BY(mutex_) = 0;
  uint32_t next_ MRD_GUARDED_BY(mutex_) = 5000;
  std::function<void()> changed_;
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_FAKE_UVERBS_H_
