// The kernel's verbs, with a step before and after each call that changes what the kernel has.
#ifndef TESTS_VM_DYING_DYING_API_H_
#define TESTS_VM_DYING_DYING_API_H_

#include <memory>

#include "daemon/fabric/verbs/api.h"

namespace dying {

// Each call goes to `real`, which is its own then.
std::unique_ptr<mrd::fabric::verbs::Api> MakeDyingApi(
    std::unique_ptr<mrd::fabric::verbs::Api> real);

}  // namespace dying

#endif  // TESTS_VM_DYING_DYING_API_H_
