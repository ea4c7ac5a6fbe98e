# A stock peer reads and writes a client's memory, with the rkey and the client's own address.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

both_ways() {
  serve c "$1" 65536
  ask c write b 100 seed:5000:1
  connect_peer p "$1" "$port"
  # What the peer is told is the client's own address.
  is remote_addr "$addr"
  is length 65536
  does p read 100 seed:5000:1
  does p write 60000 seed:5536:7 --confirm
  ask c expect b 60000 seed:5536:7
  ask c expect b 100 seed:5000:1
  ask c connections 1 0
  finish p
  ask c connections 0 1
}

# The key and the address are all that a peer needs.
without_private_data() {
  serve c "$1"
  connect_peer p "$1" "$port" --remote-addr "$addr" --rkey "$rkey" --length 8192
  does p write 8 hex:0123456789abcdef --confirm
  ask c expect b 8 hex:0123456789abcdef
}

three_at_once() {
  serve c "$1"
  local i
  for i in 0 1 2; do connect_peer "p$i" "$1" "$port"; done
  for i in 0 1 2; do does "p$i" write $((i * 1000)) seed:1000:"$i"; done
  for i in 0 1 2; do
    does "p$i" read $(((i + 1) % 3 * 1000)) seed:1000:$(((i + 1) % 3))
    ask c expect b $((i * 1000)) seed:1000:"$i"
  done
  ask c connections 3 0
}

# The client connects to a program that listens.
the_client_connects() {
  with_region c "$1"
  talker p peer --listen "$(address_of "$1"):0" --serve seed:4096:9 stdin 120
  hear p
  [[ $answer = "op=listen status=ok "* ]]
  local peer_port
  peer_port=$(field port)
  ask c connect "$(address_of "$1"):$peer_port" r
  is device "$1"
  is length 4096
  hear p
  [[ $answer = "op=accept status=ok "* ]]
  is remote_addr "$addr"
  does p write 16 seed:4000:3 --confirm
  ask c expect b 16 seed:4000:3
  ask c disconnect
  does p wait 10
}

nobody_listens() {
  with_region c "$1"
  refused CONNECTION_FAILED c connect "$(address_of "$1"):7999" r
}

# Any offset within a page.
a_part_of_a_buffer() {
  client c
  ask c buffer b 16384
  ask c write b 0 seed:16384:5
  ask c register r b 4196 1000 write,remote_read "$1"
  ask c listen "$(address_of "$1")" r
  connect_peer p "$1" "$(field port)"
  does p read 0 any:1000
  does p write 996 hex:01020304 --confirm
  ask c expect b 5192 hex:01020304
  # One byte beyond its end.
  fails_to_write p "$1" 997
  ask c expect b 5192 hex:01020304
}

access_is_what_was_asked_for() {
  client c
  ask c buffer b 4096
  ask c write b 0 seed:4096:2
  ask c register r b 0 4096 read "$1"
  ask c register w b 0 4096 write "$1"
  ask c register m b 0 4096 msgs "$1"
  local region
  for region in r w m; do
    ask c listen "$(address_of "$1")" "$region"
    connect_peer "$region" "$1" "$(field port)"
  done
  does r read 0 seed:4096:2
  fails_to_write r "$1"
  if [[ $1 = "$SIW_DEVICE" ]]; then
    # siw checks the access of writes only: whoever may reach a region may read it (its siw_qp_tx.c sends
    # what is read without a look at the region's access).
    does w read 0 seed:4096:2
    fails_to_write m "$1"
  else
    fails_to_read w "$1"
    fails_to_read m "$1"
  fi
  ask c expect b 0 seed:4096:2
}

# Keys of ten regions of one call; a peer uses the last one's.
ten_in_one_call() {
  serve c "$1"
  ask c buffer many 163840
  ask c register ten:10 many 0 16384 write,remote_read "$1"
  is regions 10
  connect_peer p "$1" "$port" --remote-addr "$(field addr9)" --rkey "$(field "rkey9.$1")"
  does p write 16380 hex:aabbccdd --confirm
  ask c expect many 163836 hex:aabbccdd
}

# A region needs neither the daemon's descriptor nor the client's mapping.
regions_outlive_their_buffers_release() {
  serve c "$1"
  ask c release b
  connect_peer p "$1" "$port"
  does p write 0 seed:8192:4 --confirm
  ask c expect b 0 seed:8192:4
  ask c status
  is buffers 0
  is regions 1
}

# sized SIZE PAGES ACCESS DEVICE
sized() {
  client c
  ask c buffer b "$1" "$2"
  ask c register r b 0 "$1" "$3" "$4"
  ask c listen "$(address_of "$4")" r
  connect_peer p "$4" "$(field port)"
  local last=$(($(field length) - 4096))
  does p write 0 seed:4096:1 --confirm
  does p write "$last" seed:4096:2 --confirm
  does p write $((last / 2 + 77)) seed:4096:3 --confirm
  ask c expect b 0 seed:4096:1
  ask c expect b "$last" seed:4096:2
  ask c expect b $((last / 2 + 77)) seed:4096:3
  # What it says of huge pages is true: two of 2 MiB at least, of whichever kind.
  case $2 in
    thp) (($(kib ShmemPmdMapped "${talker_pid[c]}") >= 4096)) ;;
    2m) (($(kib Shared_Hugetlb "${talker_pid[c]}") + $(kib Private_Hugetlb "${talker_pid[c]}") >= 4096)) ;;
  esac
}

# kib KEY PID: over all its mappings.
kib() { awk -v key="$1:" '$1 == key { sum += $2 } END { print sum + 0 }' "/proc/$2/smaps"; }

# S04: lengths that are no multiple of anything, from within a huge page.
unaligned_in_huge_pages() {
  client c
  ask c buffer b 32M 2m
  local offset=$((2097152 + 12345)) length=23622321  # To the 13th page's inside, odd.
  ask c register r b "$offset" "$length" write,remote_read "$1"
  is length0 "$length"
  # All of it, and not a byte more.
  [[ $(rdma res show mr dev "$1" | grep -c " mrlen $length ") = 1 ]]
  ask c listen "$(address_of "$1")" r
  connect_peer p "$1" "$(field port)"
  does p write 0 seed:4096:1 --confirm
  does p write $((length - 1)) hex:5a --confirm
  does p write $((2097152 - 12345 - 100)) seed:200:3 --confirm
  ask c expect b "$offset" seed:4096:1
  ask c expect b $((offset + length - 1)) hex:5a
  ask c expect b $((2 * 2097152 - 100)) seed:200:3
  fails_to_write p "$1" "$length"
  ask c listen "$(address_of "$1")" r
  connect_peer q "$1" "$(field port)"
  fails_to_write q "$1" -1
  # By their own wish in whole huge pages: then it says of what both must be multiples.
  refused MISALIGNED c register h b "$offset" "$length" write,hugetlb "$1"
  refused MISALIGNED c register h b 2M "$length" write,hugetlb "$1"
  refused MISALIGNED c register h b "$offset" 2M write,hugetlb "$1"
  [[ $answer = *2097152* ]]
  # The buffer ends where its last huge page does.
  refused OUT_OF_RANGE c register h b "$offset" 32M write "$1"
  # A buffer of no whole number of huge pages.
  ask c buffer odd 3779571 2m
  ask c register o odd 77 3779494 write,remote_read "$1"
  is length0 3779494
}

own_huge_memfd() {
  client c
  ask c memfd b 4M hugetlb
  # A part of a huge page.
  ask c register part b 1M 1M write,remote_read "$1"
  ask c register r b 0 4M write,remote_read,hugetlb "$1"
  ask c listen "$(address_of "$1")" r
  connect_peer p "$1" "$(field port)"
  does p write 2097150 seed:4:6 --confirm
  ask c expect b 2097150 seed:4:6
}

on_all_devices() {
  client c
  ask c buffer b 8192
  ask c register r b 0 8192 write,remote_read all
  local keys=$answer device
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    ask c listen "$(address_of "$device")" r
    connect_peer "$device" "$device" "$(field port)"
    [[ $(field rkey) = "$(answer=$keys field "rkey0.$device")" ]]
    does "$device" write 0 seed:100:"${#keys}" --confirm
    ask c expect b 0 seed:100:"${#keys}"
    does "$device" write 0 seed:100:0
  done
}

# The listener of mrctl, with the keys that it prints.
mrctl_listens() {
  local where
  where=$(address_of "$1")
  "${client_as[@]}" mrctl register --json --size 1M --access write,remote_read --device "$1" \
    --listen "$where:0" >"$scratch/keys" 2>"$scratch/mrctl.err" &
  local mrctl=$!
  within "$PATIENCE_MS" grep -q '"endpoint"' "$scratch/keys"
  cat "$scratch/keys"
  json() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" "$scratch/keys" | head -n 1; }
  connect_peer p "$1" "$(json local_port)"
  (($(field remote_addr) == $(json addr) && $(field rkey) == $(json rkey)))
  is length $((1 << 20))
  does p write 1000000 seed:40000:1 --confirm
  # Ctrl-C deregisters: the connection, and with it the peer's way in, ends.
  kill -INT "$mrctl"
  wait "$mrctl"
  grep -q '1 region deregistered' "$scratch/mrctl.err"
  does p wait 10
}

echo 48 >/proc/sys/vm/nr_hugepages
echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled
start_daemon || exit 1
each_device "a peer reads and writes, the client sees it" both_ways
each_device "a peer needs key and address only" without_private_data
each_device "three peers at once" three_at_once
each_device "the client connects to a peer" the_client_connects
each_device "no peer listens" nobody_listens
each_device "a part of a buffer" a_part_of_a_buffer
each_device "access is what was asked for" access_is_what_was_asked_for
each_device "ten regions in one call" ten_in_one_call
each_device "regions outlive the buffer's release" regions_outlive_their_buffers_release
each_device "64 MiB" sized 64M 4k write,remote_read
each_device "64 MiB of transparent huge pages" sized 64M thp write,remote_read
each_device "64 MiB of 2 MiB pages" sized 64M 2m write,remote_read,hugetlb
each_device "S04: unaligned ranges of 2 MiB pages" unaligned_in_huge_pages
each_device "a client's own huge memfd, parts of pages too" own_huge_memfd
scenario "on all devices in one call" on_all_devices
each_device "mrctl register --listen" mrctl_listens
topic_end
