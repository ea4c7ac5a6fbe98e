# Who the daemon and the clients are. The other topics run as the service does (CAP_IPC_LOCK alone), with
# unprivileged clients.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

capabilities() { sed -n "s/^$1:[[:space:]]*0*//p" "/proc/$2/status"; }

peers_write() {
  serve c "$1"
  connect_peer p "$1" "$port"
  does p write 0 seed:8192:1 --confirm
  ask c expect b 0 seed:8192:1
}

# What the other topics take for granted.
with_ipc_lock_alone() {
  [[ $(capabilities CapEff "$daemon") = 4000 && $(capabilities CapBnd "$daemon") = 4000 ]]
  [[ $(stat -c %u "/proc/$daemon/status") = "$DAEMON_UID" ]]
  peers_write "$1"
  [[ -z $(capabilities CapEff "${talker_pid[c]}") && -z $(capabilities CapBnd "${talker_pid[c]}") ]]
  [[ $(awk '/^Max locked memory/ { print $4 }' "/proc/${talker_pid[c]}/limits") = 65536 ]]
}

# More than the client itself might lock.
more_than_the_client_may_lock() {
  with_region c "$1" 64M
  ask c status
  is pinned_bytes $((64 << 20))
}

daemon_as_root() {
  daemon_as=()
  start_own_daemon
  peers_write "$1"
}

client_as_root() {
  client_as=()
  peers_write "$1"
  ask c status
  is uid 0
}

# Neither the socket's owner nor in its group.
not_in_the_group() {
  client_as=(setpriv --reuid 4799 --regid 4799 --clear-groups --inh-caps=-all --bounding-set=-all)
  local code=0 said
  said=$("${client_as[@]}" mrctl devices 2>&1) || code=$?
  echo "$code: $said"
  # What was tried, why not, and who may.
  ((code == 3))
  [[ $said = *"$MRD_SOCKET_DIR/attach.sock"* && $said = *mrd-clients* ]]
}

no_admins() {
  not "${client_as[@]}" mrctl sessions
  mrctl sessions
}

# Who may not open the devices is told so.
without_access_to_the_devices() {
  daemon_as=(setpriv --reuid 4798 --regid 4798 --groups "$CLIENTS_GID" --inh-caps=-all --bounding-set=-all)
  local code=0 said
  MRD_SOCKET_DIR=/run/forbidden
  make_socket_dirs "$MRD_SOCKET_DIR"
  chown 4798 "$MRD_SOCKET_DIR" "$MRD_SOCKET_DIR-admin"
  said=$("${daemon_as[@]}" timeout 20 mrd --fabric verbs --socket-dir "$MRD_SOCKET_DIR" 2>&1) || code=$?
  echo "$said"
  ((code == 1))
  [[ $said = *"/dev/infiniband"* ]]
}

start_daemon || exit 1
each_device "CAP_IPC_LOCK is all the daemon needs" with_ipc_lock_alone
each_device "more than the client may lock" more_than_the_client_may_lock
each_device "a client that is root" client_as_root
scenario "a client that is not in the sockets' group" not_in_the_group
scenario "clients are no admins" no_admins
each_device "a daemon that is root" daemon_as_root
scenario "a daemon without access to the devices" without_access_to_the_devices
topic_end
