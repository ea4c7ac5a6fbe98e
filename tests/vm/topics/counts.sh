# What the kernel itself says is registered, by whom and where: `rdma res` over the life of regions.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# mrs COUNT DEVICE: held by the daemon, and by nobody else.
mrs() {
  rdma_expect_count mr "$1" "$2" "$daemon"
  rdma_expect_count mr "$1" "$2"
}

one_and_ten() {
  client c
  ask c buffer b 163840
  mrs 0 "$1"
  ask c register one b 0 163840 write "$1"
  mrs 1 "$1"
  ask c register ten:10 b 0 16384 write "$1"
  mrs 11 "$1"
  # As large as they were asked for: the kernel's own words.
  [[ $(rdma res show mr | grep -c "dev $1 .*mrlen 16384 ") = 10 ]]
  [[ $(rdma res show mr | grep -c "dev $1 .*mrlen 163840 ") = 1 ]]
  ask c deregister ten
  mrs 1 "$1"
  ask c leases
  is leases 1
  ask c deregister one
  mrs 0 "$1"
}

several_devices() {
  client c
  ask c buffer b 4096
  ask c register all b 0 4096 write all
  mrs 1 "$RXE_DEVICE"
  mrs 1 "$SIW_DEVICE"
  ask c register some b 0 4096 write "$SIW_DEVICE,$RXE_DEVICE"
  mrs 2 "$RXE_DEVICE"
  mrs 2 "$SIW_DEVICE"
  # Each registration on each device counts, in whole pages.
  ask c status
  is regions 4
  is pinned_bytes 16384
  ask c deregister all
  mrs 1 "$RXE_DEVICE"
  mrs 1 "$SIW_DEVICE"
}

# A domain is the session's own: one a device, whatever the number of regions.
domains() {
  local domains
  domains=$(rdma_count pd "$1" "$daemon")
  client a
  client b
  ask a buffer b 4096
  ask b buffer b 4096
  rdma_expect_count pd "$domains" "$1" "$daemon"
  ask a register r:1 b 0 4096 write "$1"
  ask a register s:1 b 0 4096 write "$1"
  rdma_expect_count pd $((domains + 1)) "$1" "$daemon"
  ask b register r b 0 4096 write "$1"
  rdma_expect_count pd $((domains + 2)) "$1" "$daemon"
  end_by a KILL
  rdma_expect_count pd $((domains + 1)) "$1" "$daemon"
}

connections() {
  serve c "$1"
  rdma_expect_count qp 0 "$1" "$daemon"
  connect_peer p "$1" "$port"
  does p write 0 hex:01 --confirm
  rdma_expect_count qp 1 "$1" "$daemon"
  ask c disconnect
  rdma_expect_count qp 0 "$1" "$daemon"
  does p wait 10
  # The region stands, and the next peer reaches it.
  finish p
  connect_peer p "$1" "$port"
  does p write 0 hex:02 --confirm
  ask c expect b 0 hex:02
}

detach_ends_all() {
  serve c "$1"
  connect_peer p "$1" "$port"
  ask c register ten:10 b 0 800 write "$1"
  ask c detach
  mrs 0 "$1"
  rdma_expect_count qp 0 "$1" "$daemon"
  does p wait 10
}

# Of what was pinned, VmPin of the daemon is the kernel's count too.
pinned_is_what_the_kernel_counts() {
  client c
  ask c buffer b 64M
  local before after
  before=$(awk '$1 == "VmPin:" { print $2 }' "/proc/$daemon/status")
  ask c register r b 0 64M write "$1"
  after=$(awk '$1 == "VmPin:" { print $2 }' "/proc/$daemon/status")
  ((after - before == 65536))
  ask c status
  is pinned_bytes $((64 << 20))
}

start_daemon || exit 1
each_device "one region and ten" one_and_ten
scenario "several devices" several_devices
each_device "a domain is a session's own" domains
each_device "connections come and go" connections
each_device "detaching ends all" detach_ends_all
each_device "pinned is what the kernel counts" pinned_is_what_the_kernel_counts
topic_end
