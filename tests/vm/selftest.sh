#!/bin/bash
# Runs in the guest: tests/vm/run tests/vm/selftest.sh
# Proves that the machine is what the VM tests take it for, with no mrd in it: that both devices work for
# stock programs, and that the peer sees both what goes well and what goes wrong.
# shellcheck disable=SC1091  # the guest's paths
set -uo pipefail
source /vm/guest/checks.sh
source /vm/guest/rdma-count.sh
source /vm/guest/rdma-setup.sh || exit 1

# start_server ARGUMENT...: starts a peer that listens; sets server, its pid, and port.
start_server() {
  server_log=$(mktemp)
  peer --listen "$addr:0" "$@" >"$server_log" 2>&1 &
  server=$!
  local deadline=$((SECONDS + 10))
  until port=$(sed -n 's/^op=listen status=ok port=//p' "$server_log") && [[ -n $port ]]; do
    ((SECONDS < deadline)) || { cat "$server_log"; return 1; }
    sleep 0.05
  done
}

# end_server: its exit code, and what it said.
end_server() {
  local code=0
  wait "$server" || code=$?
  cat "$server_log"
  return "$code"
}

# with_server SERVER-ARGUMENT... -- CLIENT-ARGUMENT...: one connection, good if both ends say so.
with_server() {
  local server_arguments=()
  while [[ $1 != -- ]]; do server_arguments+=("$1"); shift; done
  shift
  start_server "${server_arguments[@]}" || return 1
  local code=0
  peer --connect "$addr:$port" "$@" || code=$?
  end_server || code=$?
  return "$code"
}

rping_works() {
  local server code=0
  timeout 20 rping -s -a "$addr" -C 10 -v &
  server=$!
  # rping's server does not say when it listens: ask the kernel.
  rdma_expect_count cm_id 1 "$device" || code=1
  timeout 20 rping -c -a "$addr" -C 10 -v || code=$?
  wait "$server" || code=$?
  return "$code"
}

good_operations() {
  with_server --serve seed:3000000:1 wait 20 check 100 hex:cafe check 1048570 seed:20:5 -- \
    read 0 seed:3000000:1 write 100 hex:cafe --confirm write 1048570 seed:20:5 \
    read 98 any:6 loop 1 4096 65536
}

operations_of_the_accepting_side() {
  with_server read 0 seed:8192:3 write 10 hex:0badcafe --confirm -- \
    --serve seed:8192:3 wait 20 check 10 hex:0badcafe
}

operations_from_standard_input() {
  start_server --serve seed:4096:1 wait 20 check 0 hex:01 || return 1
  local code=0
  printf 'read 0 seed:4096:1\n# nothing\n\nwrite 0 hex:01 --confirm' |
    peer --connect "$addr:$port" stdin 20 || code=$?
  end_server || code=$?
  return "$code"
}

# The peer must call wrong what is wrong: other bytes than expected, success where an error was expected.
detects_mismatch() {
  with_server --serve seed:4096:1 wait 20 -- read 0 seed:4096:1 read 0 seed:4096:2
  (($? == 1))
}

detects_missing_error() {
  with_server --serve seed:4096:1 wait 20 -- read 0 seed:4096:1 --expect-error
  (($? == 1))
}

# wrong_access CLIENT-ARGUMENT...: an operation that the device must refuse, leaving the served memory as
# it was. On RoCE the requester gets a remote access error; on iWARP the connection ends.
wrong_access() {
  local log code=0
  log=$(mktemp)
  start_server --serve seed:8192:1 wait 20 check 0 seed:8192:1 || return 1
  peer --connect "$addr:$port" "$@" >"$log" 2>&1 || code=$?
  end_server || code=$?
  cat "$log"
  case $device in
    "$RXE_DEVICE") grep -q 'status=remote_access_error expected=yes' "$log" || code=1 ;;
    "$SIW_DEVICE") grep -q 'expected=yes connection=down' "$log" || code=1 ;;
  esac
  return "$code"
}

wrong_key_write() { wrong_access --rkey 0x12345 write 0 hex:ff --confirm --expect-error; }
wrong_key_read() { wrong_access --rkey 0x12345 read 0 any:8 --expect-error; }
out_of_bounds() { wrong_access read 8190 any:4 --expect-error; }
before_the_region() { wrong_access write -1 hex:ff --confirm --expect-error; }

iwarp_wrong_write_ends_connection() {
  # The completion of the WRITE itself may well be good: what counts is that the connection goes.
  with_server --serve seed:8192:1 wait 20 check 0 seed:8192:1 -- \
    --rkey 0x12345 write 0 hex:ff --confirm --expect-error wait 5
}

# The death of the other side's process, while a loop runs.
sees_death_of_the_other_side() {
  start_server --serve any:4096 sleep 60 || return 1
  local log client code=0
  log=$(mktemp)
  peer --connect "$addr:$port" loop 30 0 4096 --expect-error >"$log" 2>&1 &
  client=$!
  rdma_expect_count mr 2 "$device" || code=1  # the server's, and the client's own
  kill -9 "$server"
  wait "$client" || code=1
  wait "$server" 2>/dev/null
  cat "$log"
  grep -q 'op=loop .*expected=yes' "$log" || code=1
  return "$code"
}

# On no endpoint at all, and on one that rejects.
refused_by_nobody() { peer --connect "$addr:7999" --expect-refused; }
refused_by_listener() { with_server --reject -- --expect-refused; }

no_silent_success_of_refusal() {
  with_server --serve any:4096 wait 20 -- --expect-refused
  (($? == 1))
}

nobody_comes() {
  peer --listen "$addr:0" --timeout 0.5
  (($? == 1))
}

counts_are_right() {
  start_server --serve any:4096 wait 20 || return 1
  local code=0
  peer --connect "$addr:$port" sleep 60 &
  local client=$!
  # librdmacm has a protection domain of its own for each device that a process opens.
  rdma_expect_count mr 1 "$device" "$server" && rdma_expect_count mr 0 "$device" "$client" &&
    rdma_expect_count qp 1 "$device" "$server" && rdma_expect_count qp 1 "$device" "$client" &&
    rdma_expect_count qp 2 "$device" && rdma_expect_count pd 2 "$device" "$server" || code=1
  kill "$client"
  wait "$client"
  end_server || code=1
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
  check "$device: rping" rping_works
  check "$device: read, write, loop" good_operations
  check "$device: the accepting side reads and writes" operations_of_the_accepting_side
  check "$device: operations from standard input" operations_from_standard_input
  check "$device: other bytes than expected are an error" detects_mismatch
  check "$device: success where an error is expected is one" detects_missing_error
  check "$device: wrong key, write" wrong_key_write
  check "$device: wrong key, read" wrong_key_read
  check "$device: read beyond the region" out_of_bounds
  check "$device: write before the region" before_the_region
  [[ $device != "$SIW_DEVICE" ]] ||
    check "$device: a wrong write ends the connection" iwarp_wrong_write_ends_connection
  check "$device: the other side is killed" sees_death_of_the_other_side
  check "$device: refused where nobody listens" refused_by_nobody
  check "$device: refused by the listener" refused_by_listener
  check "$device: a connection where a refusal is expected is an error" no_silent_success_of_refusal
  check "$device: nobody connects" nobody_comes
  check "$device: rdma_count counts processes' entries" counts_are_right
  check "$device: nothing is left" nothing_left
done
checks_end
