#!/bin/bash
# The manual pages: man finds nothing wrong with them, and they have each command, option and field that there is.
set -uo pipefail
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

page() { cat "$TEST_TMPDIR/$1"; }

for name in mrd.8 mrctl.1 mrd.textproto.5; do
  # Wide, so that no name is broken over lines.
  warnings=$(MANWIDTH=500 LC_ALL=C.UTF-8 man --warnings --no-hyphenation --no-justification -l "deploy/man/$name.roff" \
    2>&1 >"$TEST_TMPDIR/$name.raw")
  [ -z "$warnings" ] || fail "$name: $warnings"
  col -bx <"$TEST_TMPDIR/$name.raw" >"$TEST_TMPDIR/$name"
  ! page "$name" | grep '@' || fail "$name: a part was not made"
  page "$name" | head -n 1 | grep -qiF "${name%.*}(${name##*.})" || fail "$name: no title"
done

# The options and positionals that --help tells of.
told() { "$@" --help | sed -nE 's/^  (-h,)?(--[a-z-]+|[A-Z]+ ).*/\2/p' | tr -d ' '; }
# has TEXT WHAT NAME...
has() {
  local text=$1 what=$2 name
  shift 2
  for name in "$@"; do
    grep -qE "^ +(-h, )?$name( |$)" <<<"$text" || fail "$what: no $name"
  done
}

mapfile -t options < <(told daemon/mrd)
[ ${#options[@]} -ge 10 ] || fail "mrd --help is read wrongly: ${options[*]}"
has "$(page mrd.8)" "mrd(8)" "${options[@]}"

mapfile -t options < <(told client/mrctl/mrctl)
has "$(page mrctl.1)" "mrctl(1)" "${options[@]}"
commands_of() { client/mrctl/mrctl "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z]*\).*/\1/p'; }
count=0
check_command() {
  local text each
  text=$(page mrctl.1 | awk -v name="   $*" '/^ ? ? ?[^ ]/ { on = $0 == name } on')
  [ -n "$text" ] || fail "mrctl(1): no section \"$*\""
  mapfile -t options < <(told client/mrctl/mrctl "$@" | grep -vxF -e --help)
  has "$text" "mrctl(1), $*" "${options[@]}"
  count=$((count + ${#options[@]}))
  for each in $(commands_of "$@"); do check_command "$@" "$each"; done
}
for command in $(commands_of); do check_command "$command"; done
[ $count -ge 20 ] || fail "mrctl --help is read wrongly: $count options"

# Each field of the messages that a policy file is made of.
for message in Policy Rule IdRange RuleLimits RuleTtl; do
  mapfile -t fields < <(sed -n "/^message $message {/,/^}/s/^  [a-zA-Z_. 0-9]* \([a-z_]*\) = [0-9]*;.*/\1:?/p" \
    proto/mrd/v1/policy.proto)
  [ ${#fields[@]} -ge 1 ] || fail "$message is read wrongly"
  has "$(page mrd.textproto.5)" "mrd.textproto(5)" "${fields[@]}"
done
has "$(page mrd.textproto.5)" "mrd.textproto(5)" LOCAL_WRITE HUGETLB

[ "$failures" -eq 0 ] && echo "manual pages: good"
[ "$failures" -eq 0 ]
