#!/bin/bash
# Runs in the guest with systemd as PID 1: tests/vm/run -s -j DIR tests/vm/journal.sh, DIR with bin/mrd and
# bin/mrctl. What an operator finds in the journal of a daemon that systemd runs.
# shellcheck disable=SC1091,SC2154  # the guest's paths, and what is set there
set -uo pipefail
source /vm/guest/checks.sh
source /vm/guest/rdma-setup.sh || exit 1
install -m 755 /job/bin/* /usr/local/bin/  # /job is not for other users.
export MRD_SOCKET_DIR=/run/mrd
scratch=$(mktemp -d)

# entries MATCH...: of the daemon, a JSON object a line.
entries() {
  journalctl --sync
  journalctl --no-pager -o json -u mrd.service "$@"
}
# field ENTRY NAME
field() { sed -n "s/.*\"$2\":\"\\([^\"]*\\)\".*/\\1/p" <<<"$1"; }

starts() {
  cat >"$scratch/policy" <<'END'
rules { name: "one" limits { regions: 1 } }
END
  systemd-run --unit=mrd --quiet -p User=daemon -p AmbientCapabilities=CAP_IPC_LOCK -p RuntimeDirectory="mrd mrd-admin" \
    -p SetCredential="policy:$(cat "$scratch/policy")" \
    /usr/local/bin/mrd --fabric verbs --socket-dir /run/mrd --socket-mode 0666 --config /run/credentials/mrd.service/policy || return 1
  local i
  for ((i = 0; i < 300; i++)); do
    entries | grep -q ' ready: ' && return 0
    sleep 0.1
  done
  journalctl --no-pager -u mrd
  return 1
}

# Nothing of the text form's: no time, no level, no fields in the message.
devices_have_a_field() {
  local entry
  entry=$(entries "MRD_DEVICE=$RXE_DEVICE" | head -n 1)
  [[ $(field "$entry" PRIORITY) = 6 && $(field "$entry" MESSAGE) = "device $RXE_DEVICE: "* ]]
}

a_refusal_has_its_fields() {
  mrctl register --size 4K --count 2 --for 0 2>"$scratch/refused"
  grep -q 'limit of 1 regions' "$scratch/refused" || { cat "$scratch/refused"; return 1; }
  local entry
  entry=$(entries MRD_REASON=QUOTA_REGIONS | tail -n 1)
  echo "$entry"
  [[ $(field "$entry" PRIORITY) = 4 && $(field "$entry" MRD_UID) = 0 && $(field "$entry" MRD_METHOD) = Register ]] &&
    [[ $(field "$entry" MRD_SESSION) =~ ^[0-9]+$ && $(field "$entry" MRD_PID) =~ ^[0-9]+$ ]]
}

# journalctl MRD_SESSION=... tells its life.
a_session_is_found_by_its_number() {
  mrctl register --size 4K --for 100 >"$scratch/held" 2>&1 &
  local holder=$! session i entry
  for ((i = 0; i < 100; i++)); do
    session=$(mrctl leases | awk 'NR == 2 { print $2 }')
    [[ $session =~ ^[0-9]+$ ]] && break
    sleep 0.1
  done
  mrctl revoke session "$session" --reason "seen in the journal" || return 1
  wait "$holder"
  entries "MRD_SESSION=$session"
  entry=$(entries "MRD_SESSION=$session" MRD_REASON=revoked | head -n 1)
  [[ $(field "$entry" MESSAGE) = *"seen in the journal"* && $(field "$entry" MRD_ADMIN_UID) = 0 ]]
}

nothing_else_is_in_it() {
  ! entries | grep -qi 'token'
}

ends_in_order() {
  systemctl stop mrd || return 1
  entries >"$scratch/all"
  grep -q '"MESSAGE":"ended"' "$scratch/all"
}

check "the daemon as a unit of systemd" starts
((checks_failed == 0)) || { checks_end; exit 1; }
check "a device's line has its field" devices_have_a_field
check "a refusal has session, uid, pid, reason and method" a_refusal_has_its_fields
check "a session's lines are found by its number" a_session_is_found_by_its_number
check "no token" nothing_else_is_in_it
check "it ends in order" ends_in_order
checks_end
