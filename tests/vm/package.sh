#!/bin/bash
# Runs in the guest with systemd as PID 1: tests/vm/run -s -j DIR tests/vm/package.sh, DIR with the packages of
# deploy/package in first/ and, of a later version, in next/. Installed, used, upgraded, removed and purged as an operator
# does it.
# shellcheck disable=SC1091,SC2154  # the guest's paths, and what is set there
set -uo pipefail
source /vm/guest/checks.sh
source /vm/guest/rdma-setup.sh || exit 1
scratch=$(mktemp -d)

units=(mrd.service mrd.socket mrd-attach.socket mrd-admin.socket)
# Images of containers keep packages from starting services by this; an operator's machine has none.
rm -f /usr/sbin/policy-rc.d
# Manual pages are not what takes so long here.
rm -f /var/lib/man-db/auto-update
# systemd has not looked at users' files yet that came with the host's root.
systemctl daemon-reload

main_pid() { systemctl show -p MainPID --value mrd.service; }
# All that is on the machine by that name, but what systemd notes for itself until the next boot, and logs.
traces() {
  find /etc /usr /lib/systemd /run /var/lib /dev/shm -xdev \( -name '*mrd*' -o -name 'mrctl*' \) ! -path '/usr/src/*' \
    ! -path '/run/systemd/*' ! -path '/run/log/*' 2>/dev/null | sort
}
# eventually SECONDS COMMAND...
eventually() {
  local i
  for ((i = 0; i < $1 * 10; i++)); do
    "${@:2}" && return 0
    sleep 0.1
  done
  "${@:2}"
}
# as USER COMMAND...
as() { setpriv --reuid "$1" --regid "$1" --init-groups "${@:2}"; }

installs() {
  dpkg -i /job/first/*.deb || return 1
  systemctl is-active "${units[@]}" || { systemctl status --no-pager "${units[@]}"; return 1; }
  systemctl is-enabled "${units[@]}" || return 1
  [[ $(readlink "/proc/$(main_pid)/exe") = /usr/bin/mrd ]]
}

belongs_to_whom_it_should() {
  local want='/run/mrd 755 root root
/run/mrd-admin 700 root root
/run/mrd-admin/attach.sock 600 root root
/run/mrd/attach.sock 660 root mrd
/run/mrd/mrd.sock 660 root mrd'
  stat -c '%n %a %U %G' /run/mrd /run/mrd-admin /run/mrd-admin/attach.sock /run/mrd/{attach,mrd}.sock | diff - <(echo "$want")
}

# As a user of its own, without rights but that to pin, and unable to get others.
is_hardened() {
  local status
  status=/proc/$(main_pid)/status
  grep -E '^(Uid|Cap|NoNewPrivs|Seccomp):' "$status"
  [[ $(awk '/^Uid:/ { print $2, $3, $4, $5 }' "$status" | xargs -n 1 | sort -u) = "$(id -u mrd)" ]] &&
    [[ $(awk '/^CapBnd:/ { print $2 }' "$status") = 0000000000004000 ]] &&
    [[ $(awk '/^CapEff:/ { print $2 }' "$status") = 0000000000004000 ]] &&
    grep -q '^NoNewPrivs:.*1$' "$status" && grep -q '^Seccomp:.*2$' "$status"
}

has_its_manual() {
  local page
  for page in 'mrd.8' 'mrctl.1' 'mrd.textproto.5'; do
    man --warnings "${page##*.}" "${page%.*}" >"$scratch/page" 2>"$scratch/warnings" && [[ -s $scratch/page ]] || return 1
    [[ ! -s $scratch/warnings ]] || { cat "$scratch/warnings"; return 1; }
  done
  mrctl policy check /usr/share/doc/mrd/examples/mrd.textproto.example
}

serves_members_of_its_group_only() {
  useradd --no-create-home --groups mrd worker && useradd --no-create-home stranger || return 1
  local device
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    as worker mrctl register --size 64K --device "$device" --for 0 || return 1
  done
  as stranger mrctl register --size 64K --for 0 >"$scratch/refused" 2>&1
  [[ $? = 3 ]] || { cat "$scratch/refused"; return 1; }
}

takes_a_policy() {
  echo 'rules { name: "from the test" uid: '"$(id -u worker)"' limits { regions: 7 } }' >/etc/mrd/mrd.textproto
  systemctl reload mrd || return 1
  eventually 10 applies
}
applies() { as worker mrctl status | grep -q 'from the test'; }

# What each session holds: lease, address, length, device, lkey and rkey.
leases() { mrctl --json leases | grep -E '"(lease_id|addr|length|device|lkey|rkey)"'; }

# A client on each device, and a stock peer that writes and reads at each without pause.
declare -A client peer
serves_peers() {
  local device address
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    address=$RXE_ADDR
    [[ $device = "$RXE_DEVICE" ]] || address=$SIW_ADDR
    as worker mrctl register --size 64K --device "$device" --access local_write,remote_read,remote_write \
      --listen "$address:0" --for 3000 >"$scratch/$device.said" 2>&1 &
    client[$device]=$!
    eventually 60 grep -q '^listening on ' "$scratch/$device.said" || { cat "$scratch/$device.said"; return 1; }
    peer --connect "$address:$(sed -n 's/^listening on .*:\([0-9]*\),.*/\1/p' "$scratch/$device.said")" \
      loop 3000 0 4096 --pause 1 >"$scratch/$device.peer" 2>&1 &
    peer[$device]=$!
    eventually 60 grep -q 'op=connect status=ok' "$scratch/$device.peer" || { cat "$scratch/$device.peer"; return 1; }
  done
}

upgrades() {
  leases >"$scratch/before" && [[ -s $scratch/before ]] || return 1
  local pid sockets
  pid=$(main_pid)
  sockets=$(stat -c '%n %i' /run/mrd /run/mrd/* /run/mrd-admin /run/mrd-admin/*)
  dpkg -i /job/next/*.deb || return 1
  [[ $(dpkg-query -W -f '${Version}' mrd) = *+next ]] || return 1
  systemctl is-active "${units[@]}" || { journalctl --no-pager -u mrd | tail -n 30; return 1; }
  [[ $(main_pid) != "$pid" ]] || { echo "the daemon was not restarted"; return 1; }
  # Containers have them as a volume, and who connects meanwhile waits.
  diff <(echo "$sockets") <(stat -c '%n %i' /run/mrd /run/mrd/* /run/mrd-admin /run/mrd-admin/*) || return 1
  as worker mrctl register --size 64K --for 0
}

# Those who were there all the while.
leaves_leases_and_keys() {
  kill -0 "${client[@]}" || { cat "$scratch"/*.said; return 1; }
  eventually 10 leases_are_the_same
}
leases_are_the_same() { leases | diff "$scratch/before" -; }
is_undone() {
  dpkg -i --force-downgrade /job/first/*.deb && leaves_leases_and_keys && dpkg -i /job/next/*.deb && leaves_leases_and_keys
}

leaves_peers_at_it() {
  local device failed=0
  for device in "${!peer[@]}"; do
    kill -TERM "${peer[$device]}"
    wait "${peer[$device]}" || failed=1
    cat "$scratch/$device.peer"
    grep -q ' rounds_failed=0 ' "$scratch/$device.peer" || failed=1
  done
  kill "${client[@]}"
  wait "${client[@]}"
  return "$failed"
}

removes() {
  local client
  as worker mrctl register --size 64K --all-devices --for 600 >"$scratch/keys" 2>"$scratch/notes" &
  client=$!
  eventually 20 grep -q "$RXE_DEVICE" "$scratch/keys" || return 1
  dpkg -r mrd || return 1
  ! systemctl is-active "${units[@]}" || return 1
  [[ ! -e /run/mrd/mrd.sock && ! -e /run/mrd/attach.sock && ! -e /run/mrd-admin/attach.sock ]] || { ls -R /run/mrd*; return 1; }
  # What a device holds for somebody, and whose process is not the kernel's own.
  ! rdma resource show mr | grep 'comm mrd' || return 1
  wait "$client"
  [[ $? = 3 ]] || { cat "$scratch/notes"; return 1; }
  [[ -e /etc/mrd/mrd.textproto && -d /run/mrd ]]
}

comes_back() {
  dpkg -i /job/next/mrd_*.deb || return 1
  systemctl is-active "${units[@]}" && systemctl is-enabled "${units[@]}" && applies
}

purges() {
  dpkg -P mrd mrctl libmrd-dev libmrd1 || return 1
  getent passwd mrd || return 1
  systemctl daemon-reload
  ! systemctl cat mrd.service 2>/dev/null || return 1
  [[ $(systemctl list-units --all --no-legend 'mrd*' | wc -l) = 0 ]] || { systemctl list-units --all 'mrd*'; return 1; }
  diff "$scratch/traces" <(traces)
}

traces >"$scratch/traces"
check "the packages install, and the service runs" installs
((checks_failed == 0)) || { journalctl --no-pager -u mrd | tail -n 40; checks_end; exit 1; }
check "directories and sockets have their owners and modes" belongs_to_whom_it_should
check "the daemon has one right and no way to others" is_hardened
check "its manual is there, and its example of a policy is valid" has_its_manual
check "members of group mrd are served, others are not" serves_members_of_its_group_only
check "a policy in /etc/mrd is taken by a reload" takes_a_policy
check "clients serve stock peers on both devices" serves_peers
check "an upgrade restarts the service, not its sockets" upgrades
check "it leaves leases and keys" leaves_leases_and_keys
check "an upgrade that is undone leaves them too" is_undone
check "no operation of the peers has failed" leaves_peers_at_it
check "a removal stops all, and leaves the policy" removes
check "installed again it is as before" comes_back
check "a purge leaves the user alone" purges
checks_end
