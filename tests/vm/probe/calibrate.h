// A fixed piece of work of the kinds that mrd's work consists of: computing, system calls, pages.
// Its time here, over its time elsewhere, is how much slower this machine is.
#ifndef TESTS_VM_PROBE_CALIBRATE_H_
#define TESTS_VM_PROBE_CALIBRATE_H_

#include <chrono>

namespace probe {

// The best of three.
std::chrono::microseconds Calibrate();

}  // namespace probe

#endif  // TESTS_VM_PROBE_CALIBRATE_H_
