# Sourced in the guest: named checks, and the line that sums them up.
# shellcheck shell=bash

checks_passed=0 checks_failed=0

# Microseconds since the epoch.
checks_now() { echo "${EPOCHREALTIME/[.,]/}"; }

# check NAME COMMAND...: runs the command; quiet when it passes, its output is shown when it fails.
check() {
  local name=$1 log start code=0
  log=$(mktemp)
  start=$(checks_now)
  shift
  "$@" >"$log" 2>&1 || code=$?
  check_done "$name" "$code" "$start" "$log" "$*"
}

# check_done NAME CODE START LOG COMMAND: what check came to; for those that run commands in their own way.
check_done() {
  local took=$((($(checks_now) - $3) / 1000))
  if (($2 == 0)); then
    checks_passed=$((checks_passed + 1))
    echo "ok      $1 ($took ms)"
  else
    checks_failed=$((checks_failed + 1))
    echo "FAILED  $1: $5 (exit code $2, $took ms)"
    sed 's/^/        | /' "$4"
  fi
  rm -f "$4"
}

# checks_end: the sum, and false if a check failed or none was made.
checks_end() {
  echo "$checks_passed passed, $checks_failed failed"
  ((checks_failed == 0 && checks_passed > 0))
}
