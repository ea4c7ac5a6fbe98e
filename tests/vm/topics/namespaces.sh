# Clients and daemons in namespaces of their own, as in containers.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The path of this kernel: SO_PEERPIDFD comes with 6.5.
attaching_is_by_challenge() {
  client c
  ask c status
  is pid "${talker_pid[c]}"
  is uid "$CLIENT_UID"
  is death pidfd
}

# S13: nothing in common but the sockets: its own /dev/shm, mounts, pids, network, IPC.
in_a_container_of_its_own() {
  talker c unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child --mount-proc sh -c \
    'mount -t tmpfs shm /dev/shm && mount -t tmpfs dev /dev/infiniband && exec "$@"' \
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

# A daemon that cannot see its clients' pids: it is the one in a namespace.
start_daemon_in_pid_namespace() {
  daemon_as=(unshare --pid --fork --mount-proc "${daemon_as[@]}")
  start_own_daemon
  # That was unshare's pid.
  daemon=$(<"/proc/$daemon/task/$daemon/children")
  daemon=${daemon// /}
  own_daemon=$daemon
  baseline=$(holdings)
}

pid_hidden() {
  start_daemon_in_pid_namespace
  serve c "$1"
  ask c status
  is pid 0
  is uid "$CLIENT_UID"
  is death pidfd_of_the_client
  connect_peer p "$1" "$port"
  does p write 0 hex:01 --confirm
  ask c expect b 0 hex:01
  # Hang-up alone: the process lives on.
  ask c detach
  within "$SECOND_MS" gone "$1"
  does p wait 10
  kill -0 "${talker_pid[c]}"
  end_by c KILL
  # Death alone: a child holds the connection.
  serve d "$1"
  ask d sleeper 60
  local child
  child=$(field pid)
  end_by d KILL
  within "$SECOND_MS" gone "$1"
  kill "$child"
}

start_daemon || exit 1
scenario "attaching is by challenge" attaching_is_by_challenge
each_device "S13: a client in a container of its own" in_a_container_of_its_own
each_device "the client's pid is hidden" pid_hidden
topic_end
