// The steps of this process, and its end at one of them.
#ifndef TESTS_VM_DYING_STEPS_H_
#define TESTS_VM_DYING_STEPS_H_

#include "tests/vm/dying/control.h"

namespace dying {

// Before the first step. `control` stays. From here on this process is the daemon that it tells of.
void BeginSteps(Control& control);

// One step: may be the last.
void Step(const char* when, const char* what);

// Two steps, around what it lives for.
class Stepped {
 public:
  explicit Stepped(const char* what) : what_(what) { Step("before", what_); }
  ~Stepped() { Step("after", what_); }
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

 private:
  const char* const what_;
};

}  // namespace dying

#endif  // TESTS_VM_DYING_STEPS_H_
