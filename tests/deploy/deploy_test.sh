#!/bin/bash
# What deploy/install-packages, deploy/quickstart and tests/run say, with faked apt-get and dpkg-query.
set -uo pipefail
work=$TEST_TMPDIR
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# Runs a command, with its output in $out and its status in $status.
run() {
  out=$("$@" 2>&1)
  status=$?
}
has() { grep -qF -e "$1" <<<"$out" || fail "no '$1' in: $out"; }
has_not() { ! grep -qF -e "$1" <<<"$out" || fail "'$1' in: $out"; }
is() { [ "$status" -eq "$1" ] || fail "status $status, not $1: $out"; }

mkdir "$work/bin"
# Root or sudo, it is all the same to the fakes.
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
cat >"$work/bin/dpkg-query" <<'END'
#!/bin/sh
case " $MISSING " in *" $4 "*) exit 1 ;; esac
echo installed
END
cat >"$work/bin/apt-get" <<'END'
#!/bin/sh
echo "apt-get $*" >>"$APT_CALLS"
echo "Reading package lists..."
echo "pmstatus:cpio:50.0:Unpacking cpio"
exit "$APT_STATUS"
END
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH APT_CALLS=$work/calls APT_STATUS=0 MISSING=

run deploy/install-packages lint vm
is 0
has "all installed"

# What only the virtual machine needs is installed for it alone.
MISSING="cpio clang g++"
for marks in "" lint vm; do
  : >"$APT_CALLS"
  # shellcheck disable=SC2086  # None is no argument.
  run deploy/install-packages $marks
  is 0
  has_not "Reading"
  [ "$(wc -l <<<"$out")" -eq 2 ] || fail "more than two lines: $out"
  out=$(cat "$APT_CALLS")
  has "g++"
  case $marks in
    "") has_not clang && has_not cpio ;;
    lint) has clang && has_not cpio ;;
    vm) has_not clang && has cpio ;;
  esac
done

APT_STATUS=100
run deploy/install-packages
is 1
has "Reading package lists"
has "apt-get update failed"
MISSING=

# What does not build fails, and the rest is run and counted all the same.
printf '#!/bin/sh\nexit 1\n' >"$work/bin/bazel"
chmod +x "$work/bin/bazel"
APT_STATUS=0 run tests/run vm bench
is 1
has "FAILED bazel build //daemon:mrd //tests/bench/..."
[ "$(tail -n 1 <<<"$out")" = "0 passed, 2 failed" ] || fail "no counts in the end: $out"
MISSING=cpio APT_STATUS=100 run tests/run vm
is 1
[ "$(tail -n 1 <<<"$out")" = "0 passed, 1 failed" ] || fail "no counts in the end: $out"

for program in deploy/quickstart deploy/install-packages tests/run; do
  run "$program" --help
  is 0
  has "${program##*/} ["
  run "$program" --bogus
  is 2
  has "--bogus"
  has "${program##*/} ["
done
[ "$failures" -eq 0 ]
