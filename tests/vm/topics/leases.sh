# Leases that end without their client's doing, on real devices.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

free_kib() { awk '$1 == "MemFree:" { print $2 }' /proc/meminfo; }
pages_are_back() { (($(free_kib) - $1 > 48 * 1024)); }

# loop NAME: its peer works until it is stopped, and nothing may be wrong with that.
loop() { tell "$1" loop 500 0 4096 --pause 10; }
end_loop() {
  kill -TERM "${talker_pid[$1]}"
  hear "$1"
  [[ $answer = "op=loop status=ok "* ]]
  (($(field rounds_ok) > 0))
}

# A lease that lapses is the event LAPSED, and nobody need do anything.
by_itself() { :; }

by_an_admin() { mrctl revoke lease "$1" --reason "seen under a reader"; }

# S11. ends_under_a_reader EVENT COMMAND... DEVICE: the command, which is given the lease's id, ends region
# r of client c, while a peer reads it, its pages have no other holder, and other leases of the client's and
# of others are in use.
ends_under_a_reader() {
  local event=$1 device=${*: -1} where region ttl all
  shift
  set -- "${@:1:$#-1}"
  where=$(address_of "$device")
  # Until the peers are at work, on a machine that may be slow.
  ttl=$((SECOND_MS > 8000 ? SECOND_MS : 8000))
  # It is not to lapse before somebody has ended it.
  [[ $event = LAPSED ]] || ttl=$((10 * ttl))
  # The library of this one renews its lease.
  client other
  ask other buffer b 8192
  ask other register r b 0 8192 write,remote_read "$device" "ttl=$ttl"
  ask other listen "$where" r
  connect_peer others_peer "$device" "$(field port)"

  norenew_client c
  ask c buffer b 64M
  ask c buffer kept 8192
  ask c register kept kept 0 8192 write,remote_read "$device"
  ask c register r b 0 64M write,remote_read "$device" "ttl=$ttl"
  local lease_of_r addr_of_r rkey_of_r
  lease_of_r=$(field lease0)
  addr_of_r=$(field addr0)
  rkey_of_r=$(field "rkey0.$device")
  for region in kept r; do
    ask c listen "$where" "$region"
    connect_peer "$region" "$device" "$(field port)"
    ask c renew r
  done
  loop others_peer
  loop kept
  tell r reads 500 0 65536 --pause 1 --expect-error
  ask c renew r
  local renewed free
  renewed=$(checks_now)
  # The file has its pages no more, but the device does.
  ask c punch b 0 64M
  free=$(free_kib)
  sleep 1
  not pages_are_back "$free" || { echo "$((($(checks_now) - renewed) / 1000)) ms after renewal"; return 1; }
  rdma_expect_count mr 3 "$device" "$daemon"
  all=$(rdma_count mr)  # The peers' too.
  ask c untaken "$event"
  is events 0

  "$@" "$lease_of_r"
  patience=180 ask c events "$event" 1
  # When the client was told, the device had it no more.
  is events 1
  is leases 1
  is regions0 $((all - 1))
  [[ $event != LAPSED ]] || (($(checks_now) - renewed >= ttl * 1000))
  rdma_expect_count mr 2 "$device" "$daemon"
  within "$SECOND_MS" pages_are_back "$free"
  hear r
  [[ $answer = "op=reads "*" expected=yes "* ]]
  (($(field rounds_ok) > 0))
  if [[ $device = "$SIW_DEVICE" ]]; then
    does r wait 10
  else
    [[ $answer = *" status=remote_access_error "* ]]
  fi
  # A new connection finds nothing either.
  ask c listen "$where" kept
  connect_peer late "$device" "$(field port)" --remote-addr "$addr_of_r" --rkey "$rkey_of_r"
  fails_to_write late "$device"
  refused LEASE_UNKNOWN c deregister r

  end_loop others_peer
  end_loop kept
  ask c leases
  is leases 1
  rdma_expect_count mr 2 "$device" "$daemon"
}

# S21: stopped for longer than its ttl; then it learns what it lost, and has what lasts as long as it.
a_stopped_client() {
  client c
  ask c buffer b 8192
  ask c register lasting b 0 4096 write,remote_read "$1"
  ask c register r b 4096 4096 write,remote_read "$1" ttl=2000
  ask c listen "$(address_of "$1")" lasting
  connect_peer p "$1" "$(field port)"
  kill -STOP "${talker_pid[c]}"
  within $((2000 + SECOND_MS)) rdma_count_is 1 "$1"
  kill -CONT "${talker_pid[c]}"
  ask c events LAPSED 1
  does p write 0 hex:0b0c --confirm
  ask c expect b 0 hex:0b0c
  refused LEASE_UNKNOWN c deregister r
  ask c deregister lasting
}
rdma_count_is() { [[ $(rdma_count mr "$2" "$daemon") = "$1" ]]; }

# Renewing keeps a lease for many times its ttl.
renewed_for_long() {
  client c
  ask c buffer b 4096
  ask c register r b 0 4096 write,remote_read all ttl=3000
  sleep 10
  ask c untaken LAPSED
  is events 0
  rdma_expect_count mr 1 "$RXE_DEVICE" "$daemon"
  rdma_expect_count mr 1 "$SIW_DEVICE" "$daemon"
}

# consistent REGIONS PAGES: the daemon's books, as told to admin a, and the kernel.
consistent() {
  ask a totals
  is regions "$1"
  is pinned_bytes $(($2 << 12))
  [[ $(rdma_count mr "" "$daemon") = "$1" ]]
  [[ $(awk '$1 == "VmPin:" { print $2 }' "/proc/$daemon/status") = $(($2 << 2)) ]]
}

# lapse_at_once COUNT LENGTH: so many regions on each of the two devices end, 20 stay.
lapse_at_once() {
  local stay=$((2 * $1 + 20)) pages i
  local ttl=$((SECOND_MS > 4000 ? 2 * SECOND_MS : 8000))  # Until all has been counted.
  pages=$((2 * $(pages_of 100 "$2" "$1") + 20))
  admin a
  norenew_client c
  ask c buffer b 1M
  ask c register "r:$1" b 100 "$2" write all "ttl=$ttl" >/dev/null
  ask c register kept:10 b 0 4096 write all
  ask c renew
  consistent "$stay" "$pages"
  patience=180 ask c events LAPSED "$1"
  is leases "$1"
  # None was told of that was still there. With many, an early word comes while they end.
  for ((i = 0; i < $(field events); i++)); do
    (($(field "regions$i") + 2 * $(field "told$i") <= stay))
  done
  consistent 20 20
  ask c leases
  is leases 10
  ask c deregister kept
  consistent 0 0
}

# pages_of OFFSET LENGTH COUNT: that so many ranges one after the other lie on, each by itself.
pages_of() {
  local i sum=0
  for ((i = 0; i < $3; i++)); do
    sum=$((sum + ($1 + (i + 1) * $2 - 1) / 4096 - ($1 + i * $2) / 4096 + 1))
  done
  echo "$sum"
}

start_daemon || exit 1
scenario "S11: 200 leases lapse at once on both devices" lapse_at_once 200 5000
scenario "S11: 2,000 leases lapse at once, and none is told of before its end" lapse_at_once 2000 500
each_device "S11: a lease lapses under a reader" ends_under_a_reader LAPSED by_itself
each_device "S11: a lease is revoked under a reader" ends_under_a_reader REVOKED by_an_admin
each_device "S21: a client that is stopped" a_stopped_client
scenario "renewed for longer than its ttl" renewed_for_long
topic_end
