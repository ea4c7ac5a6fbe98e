#!/bin/bash
# count-cases counts every case of the last run once, and nothing of runs before it.
set -euo pipefail
logs=$TEST_TMPDIR/logs
failures=0

# result FOLDER CASE...: a test.xml as gtest writes it.
result() {
  mkdir -p "$logs/$1"
  printf '<testsuites><testsuite>%s</testsuite></testsuites>' "${*:2}" >"$logs/$1/test.xml"
}
good='<testcase name="good" classname="Suite"/>'
bad='<testcase name="bad" classname="Suite"><failure message="no"/></testcase>'

# expect LINE STATUS TARGET...
expect() {
  local line
  line=$(tests/count-cases "$2" "$logs" "${@:3}" | tail -n 1) || true
  [ "$line" = "$1" ] && return
  echo "FAILED: '$line' instead of '$1' for ${*:3}"
  failures=$((failures + 1))
}

result part/one_test "$good" "$good"
result part/two_test "$good" "$bad"
expect "2 passed, 0 failed" 0 //part:one_test
expect "3 passed, 1 failed" 3 //part:one_test //part:two_test
expect "2 passed, 1 failed" 3 //part:one_test //part:missing_test
expect "2 passed, 1 failed" 1 //part:one_test
# Killed while it wrote them.
mkdir -p "$logs/part/cut_test" "$logs/part/empty_test"
printf '<testsuites><testsuite>%s<testcase na' "$good" >"$logs/part/cut_test/test.xml"
: >"$logs/part/empty_test/test.xml"
expect "2 passed, 2 failed" 3 //part:cut_test //part:empty_test //part:one_test
# As `bazel test --runs_per_test=2` left them long ago.
result part/one_test/run_1_of_2 "$bad"
result part/one_test/run_2_of_2 "$good"
expect "2 passed, 0 failed" 0 //part:one_test
[ "$failures" -eq 0 ]
