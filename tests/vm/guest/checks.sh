# Sourced in the guest: named checks, and the line that sums them up.
# shellcheck shell=bash

checks_passed=0 checks_failed=0

# check NAME COMMAND...: runs the command; quiet when it passes, its output is shown when it fails.
check() {
  local name=$1 log code=0 took=${EPOCHREALTIME/[.,]/}
  log=$(mktemp)
  shift
  "$@" >"$log" 2>&1 || code=$?
  took=$(((${EPOCHREALTIME/[.,]/} - took) / 1000))
  if ((code == 0)); then
    checks_passed=$((checks_passed + 1))
    echo "ok      $name ($took ms)"
  else
    checks_failed=$((checks_failed + 1))
    echo "FAILED  $name: $* (exit code $code, $took ms)"
    sed 's/^/        | /' "$log"
  fi
  rm -f "$log"
}

# checks_end: the sum, and false if a check failed or none was made.
checks_end() {
  echo "$checks_passed passed, $checks_failed failed"
  ((checks_failed == 0 && checks_passed > 0))
}
