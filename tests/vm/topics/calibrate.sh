# Sourced in the guest.
# shellcheck shell=bash

# For what is no promise, but is going to come, however busy the machine is.
export PATIENCE_MS=90000

# calibrate: how much slower this machine is now than the host can be decides how long the second lasts
# within which a dead client's things must be gone. What passes says how long it took.
calibrate() {
  local native here factor
  native=$(</job/native-us)
  here=$(client_probe calibrate)
  here=${here##*mean_us=}
  factor=$(((here + native - 1) / native))
  ((factor <= 60)) || factor=60
  export SECOND_MS=$((1000 * factor))
  echo "calibration: $here us here, $native us natively: a second is $SECOND_MS ms"
}
