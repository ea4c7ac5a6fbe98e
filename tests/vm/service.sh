#!/bin/bash
# Runs in the guest with systemd as PID 1: tests/vm/run -s -j DIR tests/vm/service.sh, DIR as tests/vm/suite makes it:
# bin/ (mrd, mrctl, client_probe), systemd/ (deploy/systemd), topics/, native-us. mrd as its units run it, on rxe and siw.
# shellcheck disable=SC1091  # the guest's paths
# shellcheck disable=SC2153,SC2154  # from rdma-setup.sh and topics/lib.sh
# shellcheck disable=SC2030,SC2031  # scenarios are shells of their own
set -uo pipefail

# As README says, and as a package does it.
install -m 755 /job/bin/mrd /job/bin/mrctl /usr/bin/
install -m 755 /job/bin/client_probe /usr/local/bin/
install -m 644 /job/systemd/*.service /job/systemd/*.socket /etc/systemd/system/
for kind in sysusers.d tmpfiles.d modules-load.d; do
  install -D -m 644 "/job/systemd/$kind/mrd.conf" "/usr/lib/$kind/mrd.conf"
done
systemd-sysusers mrd.conf && systemd-tmpfiles --create mrd.conf && /lib/systemd/systemd-modules-load mrd.conf &&
  systemctl daemon-reload || exit 1

DAEMON_UID=$(id -u mrd) CLIENTS_GID=$(getent group mrd | cut -d: -f3)
export DAEMON_UID CLIENTS_GID CLIENT_UID=4711
source /job/topics/lib.sh
source /job/topics/calibrate.sh
calibrate

sockets=(mrd.socket mrd-attach.socket mrd-admin.socket)
stranger_as=("${client_as[@]/$CLIENTS_GID/$CLIENT_UID}")

main_pid() { systemctl show -p MainPID --value mrd.service; }
state() { systemctl show -p ActiveState --value mrd.service; }
status_text() { systemctl show -p StatusText --value mrd.service; }
journal() {
  journalctl --sync
  journalctl --no-pager -o cat -u mrd.service "$@"
}
# Lines of the journal from now on, and the one before. (With --after-cursor journalctl skips the first line of the unit, where
# the cursor is that of another.)
mark() {
  journalctl --sync
  journal_cursor=$(journalctl -q -n 1 --show-cursor --no-pager | sed -n 's/^-- cursor: //p')
}
# (grep -q would leave before journalctl has written all, which is an error of the pipe.)
says() { journal --cursor="$journal_cursor" | grep -e "$1" >/dev/null; }
is_active() { [[ $(state) = active ]]; }
is_another() { [[ $(state) = active && $(main_pid) != "$1" && $(main_pid) != 0 ]]; }

# Of a device that was added anew the number is another one; the rest is to be as before.
without_numbers() { sed 's/^[0-9]*: //' | sort; }
holdings() {
  local fds=(/proc/"$daemon"/fd/*) pin
  pin=$(awk '$1 == "VmPin:" { print $2 }' "/proc/$daemon/status")
  echo "fds=${#fds[@]} pinned=$pin memfds=$(grep -c '/memfd:' "/proc/$daemon/maps" || true) $(rdma res | without_numbers | tr '\n' ' ')"
}
devices_are_as_before() { [[ $(rdma res | without_numbers) = $(without_numbers <<<"$devices_before") ]]; }

# The service that runs now is the scenarios' daemon.
take_daemon() {
  daemon=$(main_pid)
  ((daemon > 0)) && warm_up
}

# --- The units.

units_are_right() {
  systemd-analyze verify --man=no mrd.service "${sockets[@]}"
}

exposure_is_low() {
  systemd-analyze security --no-pager mrd.service | tee "$scratch/security" | grep -v '^.\[32m\|^✓'
  local exposure
  exposure=$(sed -n 's/.*Overall exposure level for mrd.service: \([0-9.]*\).*/\1/p' "$scratch/security")
  echo "exposure $exposure"
  [[ -n $exposure ]] && awk -v exposure="$exposure" 'BEGIN { exit !(exposure <= 1.5) }'
}

directories_are_roots() {
  [[ $(stat -c '%U:%G %a' /run/mrd) = "root:root 755" && $(stat -c '%U:%G %a' /run/mrd-admin) = "root:root 700" ]]
}

# --- By the first client's connection, on a machine that has no RDMA device yet.

starts_with_the_first_client() {
  systemctl start "${sockets[@]}" || return 1
  [[ $(state) = inactive ]] || { echo "it runs already"; return 1; }
  [[ $(stat -c '%U:%G %a' /run/mrd/attach.sock) = "root:mrd 660" ]] || return 1
  [[ $(stat -c '%U:%G %a' /run/mrd/mrd.sock) = "root:mrd 660" ]] || return 1
  [[ $(stat -c '%U:%G %a' /run/mrd-admin/attach.sock) = "root:root 600" ]] || return 1
  "${client_as[@]}" mrctl status || return 1
  is_active
  journal | grep 'this host has no RDMA device'
}

devices_come() {
  source /vm/guest/rdma-setup.sh || return 1
  within "$PATIENCE_MS" lists_both
}
lists_both() { [[ $("${client_as[@]}" mrctl devices | grep -c "^\($RXE_DEVICE\|$SIW_DEVICE\) ") = 2 ]]; }

runs_as_the_unit_says() {
  local pid name value expected
  pid=$(main_pid)
  [[ $(stat -c '%u:%g' "/proc/$pid") = "$DAEMON_UID:$CLIENTS_GID" ]] || return 1
  # CAP_IPC_LOCK, and nothing that could be had.
  while read -r name expected; do
    value=$(awk -v name="$name:" '$1 == name { print $2 }' "/proc/$pid/status")
    [[ $value = "$expected" ]] || { echo "$name is $value"; return 1; }
  done <<'LIST'
CapEff 0000000000004000
CapPrm 0000000000004000
CapBnd 0000000000004000
CapAmb 0000000000004000
NoNewPrivs 1
Seccomp 2
LIST
  [[ $(<"/proc/$pid/oom_score_adj") = -900 ]] || return 1
  grep 'Max locked memory  *unlimited  *unlimited' "/proc/$pid/limits" &&
    grep 'Max open files  *131072  *131072' "/proc/$pid/limits" || return 1
  ! journal | grep 'LimitNOFILE' || return 1
  # What is not its business.
  ! nsenter -t "$pid" -m touch /etc/mrd-was-here || return 1
  [[ $(systemctl show -p FileDescriptorStoreMax --value mrd.service) = 2000 ]] &&
    [[ $(systemctl show -p WatchdogUSec --value mrd.service) = 30s ]]
}

registers() {
  "${client_as[@]}" mrctl register --size 64K --device "$1" --for 0
}

refuses_strangers() {
  ! "${stranger_as[@]}" mrctl register --size 4K --for 0 2>"$scratch/refused" || return 1
  cat "$scratch/refused"
  grep 'usermod -aG mrd' "$scratch/refused"
}

admins_are_root() {
  mrctl --admin sessions || return 1
  ! "${client_as[@]}" mrctl --admin sessions 2>"$scratch/refused" || return 1
  cat "$scratch/refused"
  # The daemon's own user cannot reach it either.
  ! setpriv --reuid "$DAEMON_UID" --regid "$CLIENTS_GID" --clear-groups mrctl --admin sessions
}

status_says_what_it_holds() {
  within "$PATIENCE_MS" status_is "0 sessions, 0 regions, 0 B" || return 1
  "${client_as[@]}" mrctl register --size 8K --count 2 --device "$RXE_DEVICE" --for 600 &
  local holder=$! code=0
  within "$PATIENCE_MS" status_is "1 session, 2 regions, 16.0 KiB" || code=1
  systemctl status --no-pager mrd.service | grep 'Status:'
  kill "$holder"
  wait "$holder"
  within "$PATIENCE_MS" status_is "0 sessions, 0 regions, 0 B" || code=1
  return "$code"
}
status_is() { [[ $(status_text) = "$1" ]]; }

reloads() {
  local pid
  pid=$(main_pid)
  mkdir -p /etc/mrd
  echo "rules { name: \"members\" gid: $CLIENTS_GID limits { regions: 3 } }" >/etc/mrd/mrd.textproto
  mark
  systemctl reload mrd.service || return 1
  within "$PATIENCE_MS" says 'policy in force: 1 rules' || return 1
  ! "${client_as[@]}" mrctl register --size 4K --count 4 --for 0 2>"$scratch/refused" || return 1
  grep 'limit of 3 regions' "$scratch/refused" || return 1
  echo 'rules { nonsense' >/etc/mrd/mrd.textproto
  systemctl kill -s HUP mrd.service
  within "$PATIENCE_MS" says 'the policy is not taken' || return 1
  rm /etc/mrd/mrd.textproto
  mrctl reload || return 1
  within "$PATIENCE_MS" is_active || return 1
  [[ $(main_pid) = "$pid" ]]
}

entries_have_fields() {
  journalctl --sync
  journalctl --no-pager -o cat -u mrd.service "MRD_DEVICE=$SIW_DEVICE" | grep "device $SIW_DEVICE"
}

# --- Scenarios of the daemon, again as a service.

peers_read_and_write() {
  serve c "$1"
  connect_peer p "$1" "$port"
  does p write 0 seed:8192:3 --confirm
  does p read 0 seed:8192:3
  ask c expect b 0 seed:8192:3
  finish p
}

a_container_of_its_own() {
  talker c unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child --mount-proc sh -c \
    'mount -t tmpfs shm /dev/shm && mount -t tmpfs dev /dev/infiniband && mount -t tmpfs none /run/mrd-admin && exec "$@"' \
    sh "${client_as[@]}" client_probe
  ask c attach
  ask c buffer b 8192
  ask c register r b 0 8192 write,remote_read "$1"
  ask c listen "$(address_of "$1")" r
  connect_peer p "$1" "$(field port)"
  does p write 0 seed:8192:1 --confirm
  ask c expect b 0 seed:8192:1
  end_by c KILL
  within "$SECOND_MS" gone "$1"
  does p wait 10
}

# As root, who may do everything there, and as the daemon's own user, who may not lock there.
a_second_daemon_is_refused() {
  serve c "$RXE_DEVICE"
  local as said code
  for as in root "$DAEMON_UID"; do
    code=0
    said=$(setpriv --reuid "$as" --regid "$CLIENTS_GID" --clear-groups mrd --socket-dir /run/mrd 2>&1) || code=$?
    echo "$code: $said"
    ((code == 1))
    [[ $said = *"pid $daemon"* ]]
  done
  connect_peer p "$RXE_DEVICE" "$port"
  does p write 0 hex:06 --confirm
  ask c expect b 0 hex:06
  client d
  ask d status
  rm -f /run/mrd/lock
}

a_child_that_holds_on() {
  serve c "$1"
  ask c sleeper 60
  local child
  child=$(field pid)
  connect_peer p "$1" "$port"
  end_by c KILL
  within "$SECOND_MS" gone "$1"
  kill -0 "$child"
  does p wait 10
  kill "$child"
}

a_device_goes_and_comes() {
  serve c "$1"
  rdma link delete "$1" &
  local deletion=$!
  ask c event DEVICE_REMOVED "$1"
  is leases 1
  wait "$deletion"
  ask c devices
  is devices 1
  local link=dummy-rxe type=rxe
  [[ $1 = "$RXE_DEVICE" ]] || link=dummy-siw type=siw
  rdma_plug "$type" "$1" "$(address_of "$1")" "$link"
  ask c event DEVICE_ADDED "$1"
  ask c register new b 0 8192 write,remote_read "$1"
  ask c listen "$(address_of "$1")" new
  connect_peer p "$1" "$(field port)"
  does p write 0 seed:4096:77 --confirm
  ask c expect b 0 seed:4096:77
  finish p
  # librdmacm keeps one domain on the new device.
  end_by c KILL
  within "$SECOND_MS" gone "$1"
}

# --- Ends that nobody asked for.

killed_and_back() {
  local pid i
  for ((i = 0; i < $1; i++)); do
    pid=$(main_pid)
    kill -KILL "$pid" || return 1
    within "$PATIENCE_MS" is_another "$pid" || return 1
  done
  # The devices are free of what it held, and new clients are served.
  registers "$RXE_DEVICE" && registers "$SIW_DEVICE"
}

# A connection made while there is no daemon waits for the next one.
waits_for_the_next() {
  local pid
  pid=$(main_pid)
  kill -KILL "$pid" && "${client_as[@]}" mrctl status
}

a_stuck_one_is_ended() {
  mkdir -p /run/systemd/system/mrd.service.d
  printf '[Service]\nWatchdogSec=6s\n' >/run/systemd/system/mrd.service.d/watchdog.conf
  systemctl daemon-reload && systemctl restart mrd.service || return 1
  local pid code=0
  pid=$(main_pid)
  # One that works is left alone.
  sleep 9
  [[ $(main_pid) = "$pid" ]] || return 1
  mark
  kill -STOP "$pid"
  within "$PATIENCE_MS" is_another "$pid" || code=1
  within "$PATIENCE_MS" says 'Watchdog timeout' || code=1
  registers "$RXE_DEVICE" || code=1
  rm -r /run/systemd/system/mrd.service.d
  systemctl daemon-reload && systemctl restart mrd.service || return 1
  return "$code"
}

# Anybody could put a socket of theirs there.
an_unsafe_directory_is_not_served() {
  local code=0
  unsafe_directories_are_refused || code=1
  systemd-tmpfiles --create mrd.conf || return 1
  within "$PATIENCE_MS" is_active && directories_are_roots && registers "$SIW_DEVICE" && return "$code"
}
unsafe_directories_are_refused() {
  chmod 777 /run/mrd
  mark
  ! systemctl restart mrd.service || { echo "it serves"; return 1; }
  within "$PATIENCE_MS" says 'will not use /run/mrd: everybody may write to it' || return 1
  chmod 755 /run/mrd
  chmod 755 /run/mrd-admin
  within "$PATIENCE_MS" says 'will not use /run/mrd-admin: its group or others may look into it' || return 1
  # Again and again, but slowly, so that the journal is not flooded.
  mark
  sleep 5
  within "$PATIENCE_MS" says 'will not use' || return 1
  local starts
  starts=$(journal --cursor="$journal_cursor" | grep -c 'will not use')
  echo "$starts starts in 5 s"
  ((starts <= 6))
}

# S26.
stop_ends_all() {
  serve c "$1"
  connect_peer p "$1" "$port"
  systemctl stop mrd.service "${sockets[@]}" 2>&1
  daemon=''
  within "$SECOND_MS" holds_nothing "$1"
  does p wait 10
  [[ ! -e /run/mrd/mrd.sock && ! -e /run/mrd/attach.sock && ! -e /run/mrd-admin/attach.sock ]]
  local said
  not "${client_as[@]}" mrctl status 2>"$scratch/said"
  said=$(<"$scratch/said")
  echo "$said"
  [[ $said = *"/run/mrd/attach.sock"* ]]
  mark
  systemctl start "${sockets[@]}" mrd.service
  is_active
  not says '^of the run before: [1-9]'
  # It could have been a restart until now, which sessions outlive.
  ask c lost
  refused SESSION_UNKNOWN c register r2 b 0 4096 write "$1"
  serve d "$1"
  connect_peer q "$1" "$port"
  does q write 0 hex:05 --confirm
  ask d expect b 0 hex:05
}
# What systemd lets go of after the stop, the kernel ends.
holds_nothing() {
  [[ $(rdma_count mr "$@") = 0 && $(systemctl show -p NFileDescriptorStore --value mrd.service) = 0 ]]
}

ends_in_order() {
  mark
  systemctl stop mrd.service "${sockets[@]}" || return 1
  says '^Terminated: ' && [[ $(systemctl show -p Result --value mrd.service) = success ]] &&
    within "$SECOND_MS" holds_nothing
}

check "the units are right" units_are_right
check "nobody but root writes where the sockets lie" directories_are_roots
check "the first client starts it, without any device" starts_with_the_first_client
# Exports the devices' names.
source /vm/guest/rdma-plug.sh
export RXE_DEVICE=rxe0 RXE_ADDR=10.9.0.1 SIW_DEVICE=siw0 SIW_ADDR=10.9.1.1
check "devices that come later are used" devices_come
check "exposure is at most 1.5" exposure_is_low
check "user, rights and limits are the unit's" runs_as_the_unit_says
for device in "$RXE_DEVICE" "$SIW_DEVICE"; do check "$device: a member of the group registers" registers "$device"; done
check "others are refused, and told of the group" refuses_strangers
check "admins are root" admins_are_root
check "the status says what it holds" status_says_what_it_holds
check "a reload, by systemctl, signal and mrctl" reloads
check "the journal has its fields" entries_have_fields

take_daemon || checks_failed=$((checks_failed + 1))
each_device "peers read and write" peers_read_and_write
each_device "S13: a client in a container of its own" a_container_of_its_own
scenario "S24: a second daemon is refused" a_second_daemon_is_refused
each_device "S27: a child that holds everything" a_child_that_holds_on
each_device "S28: a device goes and comes" a_device_goes_and_comes
daemon=''

check "SIGKILL: it is back" killed_and_back 1
check "SIGKILL five times: it is back" killed_and_back 5
check "who connects meanwhile waits for it" waits_for_the_next
check "a stuck one is ended by the watchdog" a_stuck_one_is_ended
check "a directory that others may write to is not served" an_unsafe_directory_is_not_served
each_device "S26: stop ends all, start begins anew" stop_ends_all
check "it ends in order" ends_in_order

if ((checks_failed > 0)); then journal | tail -n 60 | sed 's/^/mrd| /'; fi
checks_end
