#!/bin/bash
# Runs in the guest: tests/vm/run -t 600 tests/fabric/verbs_probe.sh PROBE [DEVICE]
# The verbs fabric alone, without a daemon, on soft-RoCE and soft-iWARP, with stock peers. PROBE is the binary of
# //tests/fabric:verbs_probe, by a path that the guest sees.
# shellcheck disable=SC1091  # the guest's paths
set -uo pipefail
probe=${1:?path of verbs_probe} only=${2:-}
source /vm/guest/checks.sh
source /vm/guest/rdma-count.sh
source /vm/guest/rdma-setup.sh || exit 1

# serve: starts the probe as a server; sets port. Commands go to its standard input by say.
serve() {
  log=$(mktemp)
  coproc SERVER { "$probe" serve "$device" "$addr" >"$log" 2>&1; }
  # shellcheck disable=SC2153  # set by coproc
  server=$SERVER_PID
  exec {commands}>&"${SERVER[1]}"
  expect_line '^port=' || return 1
  port=$(sed -n 's/^port=\([0-9]*\).*/\1/p' "$log")
}

say() { echo "$*" >&"$commands"; }

# expect_line REGEX [COUNT]: waits for that many such lines.
expect_line() {
  local deadline=$((SECONDS + 20))
  until (($(grep -c -- "$1" "$log") >= ${2:-1})); do
    ((SECONDS < deadline)) || { echo "no line $1:"; cat "$log"; return 1; }
    sleep 0.05
  done
}

end_serve() {
  say end
  exec {commands}>&-
  local code=0
  wait "$server" || code=$?
  cat "$log"
  ((code == 0))
}

lists_devices() {
  # Whole, before grep -q ends with the first match.
  local seen
  seen=$("$probe" devices)
  echo "$seen"
  grep -q "device=$device .*active=1 endpoints=1 .*addresses= $addr\$" <<<"$seen"
}

peer_reads_and_writes() {
  serve || return 1
  local code=0
  peer --connect "$addr:$port" read 0 seed:1048576:7 write 4096 hex:cafe0123 --confirm \
    write 1048572 hex:01020304 --confirm loop 1 65536 32768 || code=$?
  expect_line '^left error=0' || code=1
  say show 4096 4
  expect_line '^cafe0123$' || code=1
  end_serve || code=1
  return "$code"
}

several_peers_at_once() {
  serve || return 1
  local code=0 i pids=()
  for i in 1 2 3 4 5 6; do
    peer --connect "$addr:$port" loop 2 $((i * 65536)) 8192 >/dev/null &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || code=1; done
  expect_line '^left error=0' 6 || code=1
  end_serve || code=1
  return "$code"
}

connects_to_a_peer() {
  local peer_log code=0
  serve || return 1
  peer_log=$(mktemp)
  peer --listen "$addr:0" --timeout 20 read 0 seed:4096:7 write 8 hex:beef --confirm >"$peer_log" &
  local peer=$!
  until grep -q '^op=listen status=ok' "$peer_log"; do sleep 0.05; done
  say connect "$addr" "$(sed -n 's/^op=listen status=ok port=//p' "$peer_log")"
  expect_line '^connected qp=' || code=1
  wait "$peer" || code=1
  cat "$peer_log"
  expect_line '^left error=0' || code=1
  say show 8 2
  expect_line '^beef$' || code=1
  end_serve || code=1
  return "$code"
}

# After the end of a region the peer reaches nothing: RoCE says so, iWARP ends the connection.
deregister_fences() {
  serve || return 1
  local code=0 loop_log
  loop_log=$(mktemp)
  peer --connect "$addr:$port" loop 20 0 4096 --expect-error >"$loop_log" &
  local peer=$!
  expect_line '^accepted' || code=1
  sleep 0.5
  say deregister
  expect_line '^deregister OK' || code=1
  wait "$peer" || code=1
  cat "$loop_log"
  grep -q 'op=loop .*expected=yes' "$loop_log" || code=1
  expect_line '^left error=' || code=1
  end_serve || code=1
  return "$code"
}

# The queue pair goes to the error state by a wrong key: the owner is told.
wrong_key_is_told() {
  serve || return 1
  local code=0
  peer --connect "$addr:$port" --rkey 0x12345 read 0 any:8 --expect-error sleep 2 &
  local peer=$!
  expect_line '^left error=' || code=1
  wait "$peer" || code=1
  end_serve || code=1
  return "$code"
}

peer_dies() {
  serve || return 1
  local code=0
  peer --connect "$addr:$port" loop 60 0 4096 >/dev/null &
  local peer=$!
  expect_line '^accepted' || code=1
  kill -9 "$peer"
  wait "$peer" 2>/dev/null
  expect_line '^left error=' || code=1
  peer --connect "$addr:$port" read 0 any:8 || code=1
  end_serve || code=1
  return "$code"
}

# Peers that connect and die at once, more of them than the backlog holds.
hostile_peers() {
  serve || return 1
  local code=0 i pids=()
  for i in $(seq 40); do
    timeout -s KILL "0.0$((i % 10 + 1))" peer --connect "$addr:$port" sleep 60 >/dev/null 2>&1 &
    pids+=($!)
  done
  for i in $(seq 5); do
    # Garbage by TCP: siw listens on a TCP port.
    (head -c 300 /dev/urandom >"/dev/tcp/$addr/$port") 2>/dev/null
  done
  for i in "${pids[@]}"; do wait "$i" 2>/dev/null; done
  local tries
  for tries in 1 2 3 4 5 6 7 8; do  # An Accept may meet a peer that is dead.
    peer --connect "$addr:$port" read 524288 any:8 && break
    sleep 0.5
  done
  ((tries < 8)) || code=1
  end_serve || code=1
  return "$code"
}

owner_dies() {
  serve || return 1
  local code=0 loop_log
  loop_log=$(mktemp)
  peer --connect "$addr:$port" loop 30 0 4096 --expect-error >"$loop_log" &
  local peer=$!
  expect_line '^accepted' || code=1
  kill -9 "$(pgrep -f "^$probe serve")"
  wait "$peer" || code=1
  exec {commands}>&-
  cat "$loop_log"
  return "$code"
}

nothing_left() {
  local object
  for object in mr qp pd cq cm_id; do
    rdma_expect_count "$object" 0 || return 1
  done
}

for pair in "$RXE_DEVICE $RXE_ADDR" "$SIW_DEVICE $SIW_ADDR"; do
  read -r device addr <<<"$pair"
  [[ -z $only || $only = "$device" ]] || continue
  check "$device: it is listed with its address" lists_devices
  check "$device: registrations" "$probe" check "$device"
  check "$device: connecting with itself" "$probe" storm "$device" "$addr"
  check "$device: nothing is left" nothing_left
  check "$device: a peer reads and writes at the client's address" peer_reads_and_writes
  check "$device: several peers at once" several_peers_at_once
  check "$device: connecting to a peer" connects_to_a_peer
  check "$device: the end of a region fences peers" deregister_fences
  check "$device: a peer's wrong key is told" wrong_key_is_told
  check "$device: a peer dies" peer_dies
  check "$device: hostile peers" hostile_peers
  check "$device: nothing is left" nothing_left
  check "$device: the owner dies" owner_dies
  check "$device: nothing is left" nothing_left
done
checks_end
