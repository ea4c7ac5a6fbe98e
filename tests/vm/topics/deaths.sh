# Clients and daemons that die: nothing of theirs stays.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

by_sigkill() {
  serve c "$1" 163840
  ask c register ten:10 b 0 16384 write "$1"
  connect_peer p "$1" "$port"
  does p write 0 hex:01 --confirm
  rdma_expect_count mr 11 "$1" "$daemon"
  end_by c KILL
  within "$SECOND_MS" gone "$1"
  does p wait 10
  books_are_zero
}

# The daemon's own books, of all sessions.
books_are_zero() {
  within "$SECOND_MS" no_other_session
  mrctl --admin --json status >"$scratch/status"
  local name
  for name in regions pinned_bytes endpoints buffers; do
    # Of the session that asks, and the totals.
    [[ $(grep -c "\"$name\": \"0\"" "$scratch/status") = 2 ]] || { cat "$scratch/status"; return 1; }
  done
}
no_other_session() { [[ $(mrctl --json sessions | grep -c '"session_id"') = 1 ]]; }

# S19: after each step, and in the middle of the long ones.
at_every_step() {
  client c
  end_by c KILL
  all_is_as_before

  client c
  ask c buffer b 16M
  end_by c KILL
  all_is_as_before

  client c
  ask c buffer b 16M
  tell c register r b 0 16M write "$1"
  end_by c KILL
  all_is_as_before

  client c
  ask c buffer b 16M
  tell c register r b 0 16M write "$1"
  sleep 0.02
  end_by c KILL
  all_is_as_before

  with_region c "$1" 16M
  end_by c KILL
  all_is_as_before

  with_region c "$1" 16M
  ask c release b
  end_by c KILL
  all_is_as_before

  with_region c "$1" 16M
  tell c deregister r
  end_by c KILL
  all_is_as_before

  serve c "$1"
  talker p peer --connect "$(address_of "$1"):$port" stdin 120
  end_by c KILL
  end_by p KILL
  all_is_as_before
  books_are_zero
}

# S27: a child that holds everything hides nothing.
with_a_child_that_holds_on() {
  serve c "$1"
  ask c sleeper 60
  local child
  child=$(field pid)
  connect_peer p "$1" "$port"
  end_by c KILL
  within "$SECOND_MS" gone "$1"
  kill -0 "$child"
  does p wait 10
  no_other_session
  # All that it still holds is a connection to the gRPC socket that nobody speaks on.
  kill "$child"
}

the_peers_death() {
  serve c "$1"
  connect_peer p "$1" "$port"
  connect_peer q "$1" "$port"
  end_by p KILL
  ask c connections 1 1
  does q write 0 hex:07 --confirm
  ask c expect b 0 hex:07
}

# storm CLIENTS SEED DEVICE
storm() {
  local began=$SECONDS
  "${client_as[@]}" client_probe storm "$1" "$2" 10 "$3"
  # Of the last of them; the others have gone before.
  all_is_as_before
  echo "$1 clients in $((SECONDS - began)) s, all gone $took_ms ms after the last"
  books_are_zero
}
storms() {
  local log
  log=$(storm "$@") || { echo "$log"; return 1; }
  echo "$log"
  grep '^clients=' <<<"$log" >>"$scratch/storms"
  grep ' all gone ' <<<"$log" >>"$scratch/storms"
}

# The daemon's end. Each has a daemon of its own.

sigterm_ends_all() {
  start_own_daemon
  serve c "$1"
  connect_peer p "$1" "$port"
  stop_daemon
  ask c lost
  devices_of_the_client_are_free
  [[ ! -e $MRD_SOCKET_DIR/mrd.sock && ! -e $MRD_SOCKET_DIR/attach.sock ]]
  does p wait 10
  refused SESSION_UNKNOWN c register r2 b 0 4096 write "$1"
}

# All that is left is the peers'.
devices_of_the_client_are_free() {
  [[ $(rdma_count mr) = 0 ]]
  [[ $(rdma_count cm_id) -le ${#talker_pid[@]} ]]
}

sigkill_lets_the_kernel_free_all() {
  start_own_daemon
  serve c "$1"
  connect_peer p "$1" "$port"
  kill -KILL "$daemon"
  wait "$daemon" || true
  daemon='' own_daemon=''
  rdma_expect_count mr 0 "$1"
  ask c lost
  does p wait 10
  # Its sockets and its lock are in nobody's way.
  [[ -e $MRD_SOCKET_DIR/attach.sock ]]
  end_by p KILL
  start_own_daemon_again
  serve d "$1"
  connect_peer q "$1" "$port"
  does q write 0 hex:05 --confirm
  ask d expect b 0 hex:05
}
start_own_daemon_again() {
  start_daemon
  own_daemon=$daemon
}

# S24
a_second_daemon_is_refused() {
  serve c "$RXE_DEVICE"
  local code=0 said
  said=$("${daemon_as[@]}" mrd --fabric verbs --socket-dir "$MRD_SOCKET_DIR" 2>&1) || code=$?
  echo "$code: $said"
  ((code == 1))
  [[ $said = *"pid $daemon"* ]]
  # The first one's sockets are where they were, and its session knows nothing of it.
  connect_peer p "$RXE_DEVICE" "$port"
  does p write 0 hex:06 --confirm
  ask c expect b 0 hex:06
  client d
  ask d status
}

start_daemon || exit 1
each_device "SIGKILL of a client frees all" by_sigkill
each_device "S19: SIGKILL at every step" at_every_step
each_device "S27: a child that holds everything" with_a_child_that_holds_on
each_device "death of a peer" the_peers_death
scenario "S24: a second daemon is refused" a_second_daemon_is_refused
each_device "100 clients die at random moments" storms 100 20240613
sed 's/^/        /' "$scratch/storms"
check "the daemon ends in order" stop_daemon
each_device "SIGTERM of the daemon" sigterm_ends_all
each_device "SIGKILL of the daemon" sigkill_lets_the_kernel_free_all
topic_end
