#!/bin/bash
# The completion of mrctl knows every command and option that mrctl itself tells of in --help, and no other.
set -euo pipefail
mrctl=$PWD/client/mrctl/mrctl
# shellcheck source=/dev/null
source deploy/completion/mrctl.bash
failed=0

# What is completed after these words; the last one is what has been typed of the next.
completions() {
  COMP_WORDS=("$mrctl" "$@")
  COMP_CWORD=$#
  _mrctl
  printf '%s\n' "${COMPREPLY[@]}" | sort -u | sed '/^$/d'
}

expect() {
  local what=$1 want=$2 have=$3
  [ "$want" = "$have" ] && return
  failed=1
  echo "FAILED $what: mrctl has / completion has:"
  diff <(echo "$want") <(echo "$have") || true
}

# Names of the commands, of the text of --help.
commands_of() { "$mrctl" "$@" --help | sed -n '/^Subcommands:/,/^$/p' | sed -n 's/^  \([a-z][a-z]*\).*/\1/p' | sort -u; }
options_of() { "$mrctl" "$@" --help | grep -oE '^  (-h,)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u; }
global=$(printf '%s\n' --admin --help --json --socket-dir)

expect 'commands' "$(commands_of)" "$(completions '' | grep -v '^-')"
[ "$(commands_of | wc -l)" -ge 14 ] || { echo "FAILED the text of --help is read wrongly"; failed=1; }
for command in $(commands_of); do
  below=$(commands_of "$command")
  if [ -n "$below" ]; then
    expect "commands of $command" "$below" "$(completions "$command" '' | grep -v '^-')"
    for each in $below; do
      expect "options of $command $each" "$(printf '%s\n' "$(options_of "$command" "$each")" "$global" | sort -u)" \
        "$(completions "$command" "$each" --)"
    done
  else
    expect "options of $command" "$(printf '%s\n' "$(options_of "$command")" "$global" | sort -u)" \
      "$(completions "$command" --)"
  fi
done

expect 'a beginning' 'doctor domains drain' "$(completions d | grep -v devices | xargs)"
expect 'values' 'calls' "$(completions top --sort ca)"
expect 'after a value that looks like a command' "$(completions top --)" "$(completions top --interval sessions --)"
expect 'no daemon, no ids' '' "$(completions revoke session --socket-dir /no/such '')"

[ $failed = 0 ] && echo "completion: good"
exit $failed
