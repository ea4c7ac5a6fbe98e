#!/bin/bash
# Runs in the guest with systemd as PID 1: tests/vm/run -s -j DIR tests/vm/survive.sh, DIR as tests/vm/suite makes it.
# Keys that outlive the daemon, on rxe and siw: what goes on over kills and restarts, and what ends.
# shellcheck disable=SC1091  # the guest's paths
# shellcheck disable=SC2030,SC2031,SC2034,SC2153,SC2154  # scenarios are shells of their own; from rdma-setup.sh and lib.sh
set -uo pipefail
source /vm/guest/rdma-setup.sh || exit 1

install -m 755 /job/bin/mrd /job/bin/mrctl /usr/bin/
install -m 755 /job/bin/client_probe /usr/local/bin/
install -m 644 /job/systemd/*.service /job/systemd/*.socket /etc/systemd/system/
for kind in sysusers tmpfiles; do install -D -m 644 "/job/systemd/$kind.d/mrd.conf" "/usr/lib/$kind.d/mrd.conf"; done
systemd-sysusers mrd.conf && systemd-tmpfiles --create mrd.conf && systemctl daemon-reload || exit 1

DAEMON_UID=$(id -u mrd) CLIENTS_GID=$(getent group mrd | cut -d: -f3)
export DAEMON_UID CLIENTS_GID CLIENT_UID=4711
source /job/topics/lib.sh
source /job/topics/calibrate.sh
calibrate
sockets=(mrd.socket mrd-attach.socket mrd-admin.socket)
drop_in=/run/systemd/system/mrd.service.d

main_pid() { systemctl show -p MainPID --value mrd; }
stored() { systemctl show -p NFileDescriptorStore --value mrd; }
stored_is() { [[ $(stored) = "$1" ]]; }
journal() {
  journalctl --sync
  journalctl --no-pager -o cat -u mrd
}
serves() { mrctl --admin status >/dev/null 2>&1; }
another_is_there() {
  local pid
  pid=$(main_pid)
  [[ $pid != "$1" && $pid != 0 ]]
}
another_serves() { another_is_there "$1" && serves; }

scenario_end() {
  local code=$? name
  trap - ERR
  set +eE
  for name in "${!talker_pid[@]}"; do
    ((code == 0)) || sed "s/^/$name! /" "$scratch/$name.err"
  done
  kill_all "${talker_pid[@]}"
  [[ ! -e $drop_in ]] || { rm -r "$drop_in" && systemctl daemon-reload && restarted; } || code=1
  # What the scenario had is gone: what is left in the store is the daemon's own.
  within "$PATIENCE_MS" no_other_session || code=1
  within "$PATIENCE_MS" nobody_has_regions || code=1
  ((code == 0)) || { journal | tail -n 40 | sed 's/^/mrd| /'; rdma res; rdma res show mr; }
  exit "$code"
}
no_other_session() { [[ $(mrctl --admin --json sessions | grep -c '"session_id"') = 1 ]]; }
nobody_has_regions() { [[ $(rdma res show mr | grep -c 'mrn') = 0 ]]; }

killed() {
  local pid
  pid=$(main_pid)
  kill -KILL "$pid"
  within "$PATIENCE_MS" another_serves "$pid" >/dev/null
}
restarted() {
  local pid
  pid=$(main_pid)
  systemctl restart mrd
  within "$PATIENCE_MS" another_serves "$pid" >/dev/null
}
# Before the one that comes back has begun to serve.
killed_quickly() {
  local pid i
  for ((i = 0; i < 5; i++)); do
    pid=$(main_pid)
    kill -KILL "$pid" 2>/dev/null || true
    within "$PATIENCE_MS" another_is_there "$pid" >/dev/null
  done
  within "$PATIENCE_MS" serves
}

# NAME: its region's lease and keys.
keys_of() { ask "$1" keys r >/dev/null && echo "$answer"; }

# Peers on both devices write and read without pause, and a client registers without pause.
goes_on() {
  local times=20 i rxe_keys siw_keys
  serve c "$RXE_DEVICE" 65536
  connect_peer p "$RXE_DEVICE" "$port"
  serve d "$SIW_DEVICE" 65536
  connect_peer q "$SIW_DEVICE" "$port"
  rxe_keys=$(keys_of c)
  siw_keys=$(keys_of d)
  tell p loop 3000 0 4096 --pause 1
  tell q loop 3000 0 4096 --pause 1
  killed_quickly
  for ((i = 5; i < times; i++)); do killed; done
  for ((i = 0; i < times; i++)); do restarted; done
  local name
  for name in p q; do
    kill -TERM "${talker_pid[$name]}"
    hear "$name"
    [[ $answer = *" rounds_failed=0 "* ]]
  done
  [[ $(keys_of c) = "$rxe_keys" && $(keys_of d) = "$siw_keys" ]]
  ask c deregister r
  ask d deregister r
}

# How long a client waits that registers without pause.
gap() {
  local i
  client c
  patience=200
  tell c register_for 30 "$1"
  sleep 2
  for i in 1 2 3; do
    "killed"
    sleep 1
    "restarted"
    sleep 1
  done
  hear c
  [[ $answer = ok* ]]
  local longest
  longest=$(field longest_ms)
  echo "the longest gap was $longest ms of $SECOND_MS"
  # The promise is the second. In an emulated machine systemd's own part, to end one process and to wall in the next, is
  # most of it: this holds it where it is.
  ((longest <= 3 * SECOND_MS))
}

# New memory over the old connection, and a new connection to new and to old memory.
new_and_old() {
  local device=$1
  serve c "$device" 65536
  connect_peer p "$device" "$port"
  does p write 0 seed:4096:1 --confirm
  killed
  does p write 0 seed:4096:2 --confirm
  # New memory, by its key of the old generation.
  ask c buffer n 65536
  ask c register new n 0 65536 write,remote_read "$device"
  ask c keys new
  is keys 2
  does p remote "$(field addr)" "$(field key1)" 65536
  does p write 0 seed:4096:3 --confirm
  ask c expect n 0 seed:4096:3
  # New memory that the old connection is not to reach.
  ask c register newest n 0 65536 write,remote_read "$device" newest
  ask c keys newest
  is keys 1
  # A new connection, which reaches new memory by its newest key...
  connect_peer o "$device" "$port"
  ask c keys new
  does o remote "$(field addr)" "$(field key0)" 65536
  does o write 0 seed:4096:4 --confirm
  ask c expect n 0 seed:4096:4
  # ... and old memory by that which it was given for it.
  within "$PATIENCE_MS" has_keys c r 2
  does o remote "$(field addr)" "$(field key0)" 65536
  does o write 4096 seed:4096:5 --confirm
  # Both go on over the next restart.
  restarted
  does p write 8192 seed:4096:6 --confirm
  does o write 12288 seed:4096:7 --confirm
  ask c deregister r
  fails_to_write o "$device"
}
has_keys() {
  ask "$1" keys "$2" && is keys "$3"
}

# A client that dies while the daemon is down.
dead_meanwhile() {
  local device=$1 pid
  serve c "$device" 65536
  connect_peer p "$device" "$port"
  pid=$(main_pid)
  kill -KILL "$pid" "${talker_pid[c]}"
  wait "${talker_pid[c]}" || true
  forget c
  within "$PATIENCE_MS" another_serves "$pid"
  within "$SECOND_MS" nobody_has_regions
  does p wait 10
}

# Leases whose time runs out while the daemon is down.
lapses_meanwhile() {
  local device=$1 pid
  norenew_client c
  ask c buffer b 8192
  ask c register r b 0 8192 write,remote_read "$device" ttl=1500
  pid=$(main_pid)
  kill -STOP "$pid"
  sleep 2
  kill -KILL "$pid"
  within "$PATIENCE_MS" another_serves "$pid"
  within "$SECOND_MS" nobody_has_regions
}

# S26: stop frees everything, start begins clean, and the client is told the truth.
stopped_and_started() {
  local device=$1
  client c
  ask c buffer b 8192
  ask c register r b 0 8192 write,remote_read "$device"
  # Else its clients, which look for it, would have it started anew.
  systemctl stop mrd.service "${sockets[@]}"
  within "$SECOND_MS" nobody_has_regions
  within "$SECOND_MS" stored_is 0
  systemctl start mrd
  within "$PATIENCE_MS" serves
  ask c lost
}

# Ten thousand regions of a hundred sessions.
many_are_adopted() {
  local device=$1 i took
  for ((i = 0; i < 100; i++)); do
    client "c$i" >/dev/null
    ask "c$i" buffer b 1M >/dev/null
    ask "c$i" register r:100 b 0 4096 write "$device" >/dev/null
  done
  killed
  took=$(journal | sed -n 's/^of the run before: 100 sessions, 10000 regions and .* taken over in \([0-9]*\) ms;.*/\1/p' | tail -1)
  echo "adopted in ${took:-?} ms of $SECOND_MS"
  [[ -n $took ]] && ((took <= SECOND_MS))
  for ((i = 0; i < 100; i++)); do
    ask "c$i" keys r >/dev/null
    ask "c$i" deregister r >/dev/null
  done
}

# The watchdog ends one that does not answer, and what it had goes on with the next.
stuck() {
  local device=$1 keys pid
  serve c "$device" 65536
  connect_peer p "$device" "$port"
  keys=$(keys_of c)
  mkdir -p "$drop_in"
  printf '[Service]\nWatchdogSec=6s\n' >"$drop_in/watchdog.conf"
  systemctl daemon-reload
  restarted
  pid=$(main_pid)
  kill -STOP "$pid"
  does p write 0 seed:4096:1 --confirm
  within "$PATIENCE_MS" another_serves "$pid" >/dev/null
  [[ $(keys_of c) = "$keys" ]]
  does p write 0 seed:4096:2 --confirm
  ask c expect b 0 seed:4096:2
}

# A device that goes away leaves the store too; the one that comes is another one.
unplugged() {
  local device=$1 link=dummy-rxe type=rxe deletion before
  [[ $device = "$RXE_DEVICE" ]] || link=dummy-siw type=siw
  serve c "$device"
  connect_peer p "$device" "$port"
  killed
  before=$(stored)
  rdma link delete "$device" &
  deletion=$!
  ask c event DEVICE_REMOVED "$device"
  does p wait 30
  # It has the device open too.
  end_by p KILL
  wait "$deletion"
  # The context that it was made in, and the connection.
  within "$SECOND_MS" stored_is $((before - 2))
  rdma_plug "$type" "$device" "$(address_of "$device")" "$link"
  ask c event DEVICE_ADDED "$device"
  killed
  ask c register new b 0 8192 write,remote_read "$device"
  ask c listen "$(address_of "$device")" new
  connect_peer q "$device" "$(field port)"
  does q write 0 seed:4096:77 --confirm
  ask c expect b 0 seed:4096:77
}

check "the daemon starts" systemctl start mrd
check "it serves" within "$PATIENCE_MS" serves
((checks_failed == 0)) || { journal | tail -20; checks_end; exit 1; }
if (($# > 0)); then
  each_device "$*" "$@"
  checks_end
  exit
fi
scenario "a peer's operations go on over 20 kills and 20 restarts" goes_on
each_device "the control plane's gap" gap
each_device "new memory over old connections, old memory over new ones" new_and_old
each_device "a client that dies meanwhile" dead_meanwhile
each_device "leases that run out meanwhile" lapses_meanwhile
scenario "10,000 regions of 100 sessions are taken over" many_are_adopted "$RXE_DEVICE"
each_device "a stuck daemon is ended by the watchdog" stuck
each_device "a device that goes away leaves the store" unplugged
each_device "S26: stop and start" stopped_and_started
checks_end
