// A fixed piece of work of the kinds that mrd's work consists of: computing, system calls, pages.
// Its time here, over its time elsewhere, is how much slower this machine is.
#ifndef TESTS_VM_PROBE_CALIBRATE_H_
#define TESTS_VM_PROBE_CALIBRATE_H_

#include <chrono>

namespace probe {

struct Calibration {
  std::chrono::microseconds best;  // What the machine can do, whatever else runs on it.
  std::chrono::microseconds mean;  // What it does now.
};

// Takes many small pieces, and a second or less.
Calibration Calibrate();

}  // namespace probe

#endif  // TESTS_VM_PROBE_CALIBRATE_H_
