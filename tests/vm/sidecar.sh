#!/bin/bash
# Runs in the guest: tests/vm/run -m 4096 -j DIR tests/vm/sidecar.sh, DIR with the packages of deploy/package in dist/, the
# Containerfile, and root.tar of tests/vm/container-root. mrd in one container, as README has it, clients in others that
# share nothing with it but the directory of its sockets.
# shellcheck disable=SC1091,SC2154  # the guest's paths, and what is set there
set -uo pipefail
source /vm/guest/checks.sh
source /vm/guest/rdma-setup.sh || exit 1
pod=$(mktemp -d)
# As Kubernetes makes a volume.
mkdir -m 777 "$pod/sockets"

containers=(
  podman --root /tmp/containers --runroot /run/containers --tmpdir /run/libpod --storage-driver overlay --runtime crun
  --cgroup-manager cgroupfs --events-backend file
)
# Where every second of the guest is several of a machine: it tells when something is not going to come.
patience=60
eventually() {
  local deadline=$((SECONDS + patience))
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

builds() {
  "${containers[@]}" import /job/root.tar localhost/debian:12 >/dev/null || return 1
  "${containers[@]}" build --pull=never --network host --build-arg BASE=localhost/debian:12 -t mrd \
    -f /job/Containerfile /job/dist
}

starts() {
  "${containers[@]}" run -d --name mrd --network host --cap-drop all --cap-add IPC_LOCK --device /dev/infiniband \
    --ulimit memlock=-1:-1 --ulimit nofile=131072:131072 --read-only --tmpfs /run:mode=1777 -v "$pod/sockets:/run/mrd" mrd || return 1
  is_ready || { "${containers[@]}" logs mrd; return 1; }
}
is_ready() { eventually admin status >/dev/null 2>&1; }
# Admins are root in its own container, and nobody elsewhere.
admin() { "${containers[@]}" exec mrd mrctl --admin --json "$@"; }

# One right, and the host's network and users; nothing else is the host's.
has_the_rights_that_it_needs() {
  local pid ns
  pid=$("${containers[@]}" inspect -f '{{.State.Pid}}' mrd)
  grep -E '^Cap' "/proc/$pid/status"
  [[ $(awk '/^CapEff:/ { print $2 }' "/proc/$pid/status") = 0000000000004000 ]] || return 1
  [[ $(awk '/^CapBnd:/ { print $2 }' "/proc/$pid/status") = 0000000000004000 ]] || return 1
  for ns in net user; do [[ $(readlink "/proc/$pid/ns/$ns") = "$(readlink "/proc/self/ns/$ns")" ]] || return 1; done
  for ns in mnt pid ipc uts; do [[ $(readlink "/proc/$pid/ns/$ns") != "$(readlink "/proc/self/ns/$ns")" ]] || return 1; done
  ! "${containers[@]}" exec mrd touch /usr/bin/x
}

# client NAME COMMAND...: in a container with its own of everything, users too, and the directory.
client() {
  "${containers[@]}" run -d --name "$1" --network none --uidmap 0:100000:65536 --gidmap 0:100000:65536 --user 1000 \
    --cap-drop all --security-opt no-new-privileges --read-only --ulimit memlock=65536:65536 \
    -v "$pod/sockets:/run/mrd:ro" --entrypoint '["'"$2"'"]' mrd "${@:3}"
}
remove() { "${containers[@]}" rm -f -t 0 "$@" >/dev/null; }
log() { "${containers[@]}" logs "$1" 2>&1; }
listening() { log "$1" | grep -q '^listening on '; }
port_of() { log "$1" | sed -n 's/^listening on .*:\([0-9]*\),.*/\1/p'; }
holds_nothing() { [[ $(admin leases | grep -c '"lease_id"') = 0 && $(rdma resource show mr | grep -c 'comm mrd') = 0 ]]; }

# S13: its memory goes by descriptor, whatever /dev/shm it has. A stock peer writes into it and reads it back.
a_client_registers_and_a_peer_writes() {
  client "c-$1" mrctl register --size 64K --device "$1" --access local_write,remote_read,remote_write \
    --listen "$2:0" --for 1000 || return 1
  eventually listening "c-$1" || { log "c-$1"; return 1; }
  local pid ns
  pid=$("${containers[@]}" inspect -f '{{.State.Pid}}' "c-$1")
  for ns in net user mnt pid ipc uts cgroup; do
    [[ $(readlink "/proc/$pid/ns/$ns") != "$(readlink "/proc/self/ns/$ns")" ]] || { echo "it shares $ns"; return 1; }
  done
  [[ $(stat -c %d "/proc/$pid/root/dev/shm") != "$(stat -c %d /dev/shm)" ]] || return 1
  [[ ! -e /proc/$pid/root/dev/infiniband ]] || return 1
  [[ $(awk '/^CapBnd:/ { print $2 }' "/proc/$pid/status") = 0000000000000000 ]] || return 1
  peer --connect "$2:$(port_of "c-$1")" write 0 seed:65536:7 --confirm read 0 seed:65536:7
}

# The container of a client is killed: nothing of it stays.
its_death_ends_what_it_held() {
  ! holds_nothing || return 1
  "${containers[@]}" kill "c-$1" >/dev/null || return 1
  eventually holds_nothing || { admin leases; return 1; }
  remove "c-$1"
}

is_no_admin() {
  "${containers[@]}" exec worker mrctl sessions >"$pod/said" 2>&1
  [[ $? = 3 ]] || { cat "$pod/said"; return 1; }
}
registers() { "${containers[@]}" exec worker mrctl register --size 64K --device "$1" --for 0; }
has_ended() { [[ $("${containers[@]}" inspect -f '{{.State.Status}}' "$1") = exited ]]; }

# A container has no store: with mrd end all regions. Clients are told (here they end, and say so), and register anew over
# the same directory, without being started again.
a_restart_is_told() {
  client holder mrctl register --size 64K --device "$1" --for 1000 || return 1
  eventually eval '! holds_nothing' || return 1
  "${@:2}" || return 1
  eventually told || { log holder; return 1; }
  remove holder
  is_ready || { log mrd | tail -n 30; return 1; }
  registers "$1"
}
# Ended with a reason, or it has a region at the daemon that is there now.
told() {
  if has_ended holder; then
    [[ $("${containers[@]}" inspect -f '{{.State.ExitCode}}' holder) = 3 && -n $(log holder) ]]
  else
    is_ready && ! holds_nothing
  fi
}
restarted() { "${containers[@]}" restart mrd; }
killed() { "${containers[@]}" kill mrd && "${containers[@]}" start mrd; }

check "an image of the packages" builds
check "mrd in a container" starts
((checks_failed == 0)) || { checks_end; exit 1; }
check "it has one right, and the host's network and users" has_the_rights_that_it_needs
for device in "$RXE_DEVICE=$RXE_ADDR" "$SIW_DEVICE=$SIW_ADDR"; do
  check "${device%=*}: S13: a client in a container of its own; a stock peer writes and reads" \
    a_client_registers_and_a_peer_writes "${device%=*}" "${device#*=}"
  check "${device%=*}: its death ends what it held" its_death_ends_what_it_held "${device%=*}"
done
client worker sleep 10000 >/dev/null
check "a client's container is no admin" is_no_admin
for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
  check "$device: a client registers from a running container" registers "$device"
  check "$device: a restart of mrd's container is told, and clients register anew" a_restart_is_told "$device" restarted
done
check "a kill of mrd's container, too" a_restart_is_told "$RXE_DEVICE" killed
"${containers[@]}" rm -f -a -t 0 >/dev/null
checks_end
