# Sourced in the guest by each topic: the real daemon, real clients (client_probe) and stock peers, and
# scenarios that speak with them. The daemon is started as the service runs it (user of its own,
# CAP_IPC_LOCK and nothing else); the clients are unprivileged, with a memlock limit of 64 KiB.
# shellcheck shell=bash
# shellcheck disable=SC1091  # the guest's paths
# shellcheck disable=SC2034  # addr, rkey, port and others are for the topics
# shellcheck disable=SC2030,SC2031,SC2153,SC2154  # scenarios are shells of their own; from rdma-setup.sh and run.sh

set -uo pipefail
source /vm/guest/checks.sh
source /vm/guest/rdma-count.sh

export MRD_SOCKET_DIR=/run/mrd
daemon='' own_daemon='' baseline='' daemon_log=/dev/null
answer=''
patience=${PATIENCE:-60}  # seconds that an answer may take
scratch=$(mktemp -d /tmp/topic.XXXXXX)
chmod 755 "$scratch"
declare -A talker_pid=() talker_in=() talker_out=()

# For the two users see run.sh.
daemon_as=(
  setpriv --reuid "$DAEMON_UID" --regid "$DAEMON_UID" --groups "$CLIENTS_GID"
  "--inh-caps=-all,+ipc_lock" "--ambient-caps=-all,+ipc_lock" "--bounding-set=-all,+ipc_lock"
  --no-new-privs
)
client_as=(
  setpriv --reuid "$CLIENT_UID" --regid "$CLIENT_UID" --groups "$CLIENTS_GID"
  --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs
  prlimit --memlock=65536:65536
)

# ADDR of a device.
address_of() {
  case $1 in
    "$RXE_DEVICE") echo "$RXE_ADDR" ;;
    "$SIW_DEVICE") echo "$SIW_ADDR" ;;
  esac
}

# Whatever happens to a topic, the next one begins without its daemon.
trap '[[ -z $daemon ]] || kill_all "$daemon"' EXIT

# --- Scenarios.

# scenario NAME FUNCTION [ARGUMENT...]: runs the function in a shell of its own that ends with the first
# command that fails; then ends whatever it started. A scenario passes only if afterwards nothing is left
# on the devices and in the daemon.
scenario() {
  local name=$1 log start code
  log=$(mktemp)
  start=$(checks_now)
  shift
  (
    set -eE
    # A word to a program that has died is an error of that word alone.
    trap '' PIPE
    trap 'echo "failed: $BASH_COMMAND (line $LINENO of ${BASH_SOURCE[0]##*/})"' ERR
    trap scenario_end EXIT
    devices_before=$(rdma res)
    "$@"
  ) >"$log" 2>&1
  code=$?
  check_done "$name" "$code" "$start" "$log" "$*"
}

# each_device NAME FUNCTION [ARGUMENT...]: a scenario for each device, which is the last argument.
each_device() {
  local name=$1 device
  shift
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    scenario "$device: $name" "$@" "$device"
  done
}

scenario_end() {
  local code=$? name
  trap - ERR
  set +eE
  for name in "${!talker_pid[@]}"; do
    ((code == 0)) || sed "s/^/$name! /" "$scratch/$name.err"
  done
  kill_all "${talker_pid[@]}"
  [[ -z $daemon ]] || all_is_as_before || code=1
  if [[ -n $own_daemon ]]; then
    kill_all "$own_daemon"
    within "$SECOND_MS" devices_are_as_before || code=1
  fi
  ((code == 0)) || tail -n 30 "$daemon_log" | sed 's/^/mrd| /'
  exit "$code"
}

# Ends children of this shell, by their pids.
kill_all() {
  (($# > 0)) || return 0
  kill -KILL "$@" 2>/dev/null
  wait "$@" 2>/dev/null
  return 0
}

# --- The daemon.

# start_daemon [ARGUMENT...]: as $daemon_as says; comes back when it is ready. Sets daemon, its pid, and
# baseline, what it holds when nobody is attached.
start_daemon() {
  daemon_log=$scratch/mrd-${MRD_SOCKET_DIR##*/}.log
  make_socket_dirs "$MRD_SOCKET_DIR"
  "${daemon_as[@]}" mrd --fabric verbs --socket-dir "$MRD_SOCKET_DIR" --socket-group mrd-clients "$@" \
    2>"$daemon_log" &
  daemon=$!
  local deadline=$((SECONDS + patience))
  until grep -q ' ready: ' "$daemon_log"; do
    if ((SECONDS > deadline)) || ! kill -0 "$daemon" 2>/dev/null; then
      echo "mrd did not start:"
      cat "$daemon_log"
      return 1
    fi
    sleep 0.05
  done
  warm_up
}

# What the daemon makes once is then there. Sets baseline.
warm_up() {
  # With the first client. librdmacm has a domain of its own on a device since its first use there.
  "${client_as[@]}" client_probe >"$scratch/warm-up" 2>&1 <<END || return 1
attach
buffer b 8192
register r b 0 8192 write all
listen $RXE_ADDR r
listen $SIW_ADDR r
END
  if grep -v '^ok' "$scratch/warm-up"; then return 1; fi
  sleep 0.5
  baseline=$(holdings)
}

# Of whom the daemon is: it takes no other's.
make_socket_dirs() {
  local owner=$DAEMON_UID
  ((${#daemon_as[@]} > 0)) || owner=0
  mkdir -p "$1" "$1-admin"
  chown "$owner:$owner" "$1" "$1-admin"
  chmod 755 "$1"
  chmod 700 "$1-admin"
}

# own_daemon [ARGUMENT...]: one that ends with this scenario, in a directory of its own.
start_own_daemon() {
  daemon=''
  MRD_SOCKET_DIR=/run/own-mrd
  rm -rf "$MRD_SOCKET_DIR" "$MRD_SOCKET_DIR-admin"
  local code=0
  start_daemon "$@" || code=$?
  own_daemon=$daemon
  return "$code"
}

# SIGTERM; its exit code.
stop_daemon() {
  kill -TERM "$daemon"
  local code=0
  wait "$daemon" || code=$?
  daemon='' own_daemon=''
  return "$code"
}

# What there is on the devices, of all processes, and in the daemon: one line, to be compared.
holdings() {
  local fds=(/proc/"$daemon"/fd/*) key value pin='' memfds devices
  while read -r key value; do
    if [[ $key = VmPin: ]]; then pin=$value; fi
  done <"/proc/$daemon/status"
  memfds=$(grep -c '/memfd:' "/proc/$daemon/maps") || true  # none is no error
  devices=$(rdma res)
  echo "fds=${#fds[@]} pinned=$pin memfds=$memfds ${devices//$'\n'/ }"
}

# Within the second that mrd promises.
all_is_as_before() { within "$SECOND_MS" holdings_are_as_before; }
holdings_are_as_before() {
  holdings_now=$(holdings)
  [[ $holdings_now = "$baseline" ]]
}
show_holdings() {
  printf 'is  %s\nwas %s\n' "$holdings_now" "$baseline"
  local fd
  for fd in /proc/"$daemon"/fd/*; do echo "${fd##*/} $(readlink "$fd")"; done | sort -k2 | tr '\n' ' '
  echo
}
devices_are_as_before() { [[ $(rdma res) = "$devices_before" ]]; }

# within MILLISECONDS COMMAND...: until it succeeds. Says how long that took; and if it never did, what
# was held at the end.
within() {
  local most=$(($1 * 1000)) start
  start=$(checks_now)
  shift
  until "$@"; do
    if (($(checks_now) - start > most)); then
      echo "not within $((most / 1000)) ms: $*"
      [[ $1 != holdings_* ]] || show_holdings
      return 1
    fi
    sleep 0.02
  done
  took_ms=$((($(checks_now) - start) / 1000))
  echo "after $took_ms ms: $*"
}

# gone DEVICE: the daemon has no region and no queue pair there.
gone() { [[ $(rdma_count mr "$1" "$daemon") = 0 && $(rdma_count qp "$1" "$daemon") = 0 ]]; }

# not COMMAND...: which must fail. (set -e does not see a failed "!".)
not() {
  if "$@"; then
    echo "went well, and should not: $*"
    return 1
  fi
}

# --- Programs that are spoken to.

# talker NAME COMMAND...: starts a program that takes lines and answers each with one.
talker() {
  local name=$1 in out
  shift
  [[ ! -e $scratch/$name.in ]] || rm -f "$scratch/$name".{in,out}
  mkfifo "$scratch/$name".{in,out}
  (
    # The ends of others' pipes, kept here, would hide their end.
    for in in "${talker_in[@]}" "${talker_out[@]}"; do exec {in}>&-; done
    trap - PIPE
    exec "$@" <"$scratch/$name.in" >"$scratch/$name.out" 2>"$scratch/$name.err"
  ) &
  talker_pid[$name]=$!
  exec {in}>"$scratch/$name.in" {out}<"$scratch/$name.out"
  talker_in[$name]=$in talker_out[$name]=$out
}

# Its next line, in answer.
hear() {
  if ! IFS= read -r -t "$patience" -u "${talker_out[$1]}" answer; then
    answer=''
    echo "$1 says nothing"
    return 1
  fi
  echo "$1: $answer"
}

# say NAME WORD...: one line, and the answer to it.
say() {
  local name=$1
  shift
  tell "$name" "$@"
  hear "$name"
}

# tell NAME WORD...: one line, without waiting for the answer.
tell() {
  local name=$1
  shift
  echo "$name> $*"
  echo "$*" >&"${talker_in[$name]}"
}

# The value of KEY in the answer.
field() {
  local word
  for word in $answer; do
    if [[ $word = "$1="* ]]; then
      echo "${word#*=}"
      return 0
    fi
  done
  echo "no $1 in: $answer" >&2
  return 1
}

# is KEY VALUE: in the answer.
is() {
  local value
  value=$(field "$1")
  [[ $value = "$2" ]] || { echo "$1 is $value, not $2"; return 1; }
}

# end_by NAME SIGNAL: one that ends it; waits for the end.
end_by() {
  local pid=${talker_pid[$1]}
  kill "-$2" "$pid"
  wait "$pid" || true
  forget "$1"
}

# End of input; its exit code.
finish() {
  local pid=${talker_pid[$1]} code=0 in=${talker_in[$1]}
  exec {in}>&-
  wait "$pid" || code=$?
  echo "$1 ended with $code"
  forget "$1"
  return "$code"
}

forget() {
  local in=${talker_in[$1]} out=${talker_out[$1]}
  exec {in}>&- {out}<&-
  unset "talker_pid[$1]" "talker_in[$1]" "talker_out[$1]"
}

# --- Clients.

# client NAME: an unprivileged one, attached.
client() {
  talker "$1" "${client_as[@]}" client_probe
  ask "$1" attach "$1"
}

# norenew_client NAME: the same; its leases lapse unless it is told to renew them.
norenew_client() {
  talker "$1" "${client_as[@]}" client_probe
  ask "$1" attach "$1" norenew
}

# admin NAME: one that may ask for the totals.
admin() {
  talker "$1" client_probe
  ask "$1" attach "$1" admin
}

# ask NAME COMMAND...: which must be answered well.
ask() {
  say "$@"
  [[ $answer = ok* ]]
}

# refused REASON NAME COMMAND...: which must be refused for this reason, with advice.
refused() {
  local reason=$1
  shift
  say "$@"
  [[ $answer = "error reason=$reason "*" advice=yes "* ]]
}

# with_region NAME DEVICE [SIZE [ACCESS]]: a client with buffer b and region r of all of it, read and
# written by peers. Sets addr and rkey.
with_region() {
  local name=$1 device=$2 size=${3:-8192}
  client "$name"
  ask "$name" buffer b "$size"
  ask "$name" register r b 0 "$size" "${4:-write,remote_read}" "$device"
  addr=$(field addr0)
  rkey=$(field "rkey0.$device")
}

# serve NAME DEVICE [SIZE [ACCESS]]: with_region, listening. Sets port too.
serve() {
  with_region "$@"
  ask "$1" listen "$(address_of "$2")" r
  is device "$2"
  port=$(field port)
}

# memory_of NAME: the path of its buffer, of which it has only one.
memory_of() {
  local link
  for link in /proc/"${talker_pid[$1]}"/fd/*; do
    if [[ $(readlink "$link") = /memfd:* ]]; then
      echo "$link"
      return 0
    fi
  done
  return 1
}

# --- Stock peers.

# connect_peer NAME DEVICE PORT [OPTION...]: connects and takes operations by `does`.
connect_peer() {
  local name=$1 where
  where=$(address_of "$2"):$3
  shift 3
  talker "$name" peer --connect "$where" "$@" stdin 120
  hear "$name"
  [[ $answer = "op=connect status=ok "* ]]
}

# does NAME OPERATION...: which must come out as it says (--expect-error).
does() {
  say "$@"
  [[ $answer = *" expected=yes "* ]]
}

# fails_to_write NAME DEVICE [OFFSET]: a write that the device must refuse: on RoCE with an error, on
# iWARP by the end of the connection.
fails_to_write() {
  does "$1" write "${3:-0}" hex:deadbeef --confirm --expect-error
  if [[ $2 = "$SIW_DEVICE" ]]; then
    [[ $answer = *" connection=down "* ]]
  else
    [[ $answer = *" status=remote_access_error "* ]]
  fi
}

fails_to_read() {
  does "$1" read "${3:-0}" any:4 --expect-error
  if [[ $2 = "$SIW_DEVICE" ]]; then
    [[ $answer = *" connection=down "* ]]
  else
    [[ $answer = *" status=remote_access_error "* ]]
  fi
}

# --- The end.

# topic_end: exits; run.sh knows the codes.
topic_end() {
  if [[ -n $daemon ]]; then
    check "the daemon ends in order" stop_daemon
  fi
  rm -rf "$scratch"
  ((checks_failed == 0)) || exit 10
  exit 0
}
