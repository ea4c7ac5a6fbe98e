# Clients that mean no good, or do not know what they do. The daemon lives, and others notice nothing.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# S17: before Register; what can shrink is refused.
truncated_before() {
  client c
  ask c memfd b 1M unsealed
  ask c truncate b 0
  refused OUT_OF_RANGE c register r b 0 1M write "$1"
  ask c truncate b 1M
  say c register r b 0 1M write "$1"
  [[ $answer = "error reason=NOT_SEALED "* ]]
  ask c memfd s 1M
  ask c truncate s 0
  is errno EPERM
  ask c register r s 0 1M write "$1"
}

# S17: after it. The seals stand; punching holes harms the client alone.
punched_after() {
  serve victim "$1"
  connect_peer p "$1" "$port"
  serve c "$1" 1M
  connect_peer q "$1" "$port"
  does q write 0 seed:4096:1 --confirm
  ask c truncate b 0
  is errno EPERM
  ask c punch b 0 1M
  # The device has the old pages, the client new ones.
  does q write 0 seed:4096:2 --confirm
  say c write b 0 seed:4096:3
  ask c expect b 0 seed:4096:3
  does q read 0 seed:4096:2
  ask c deregister r
  refused NOT_POPULATED c register r b 0 1M write "$1"
  does p write 0 hex:0102 --confirm
  ask victim expect b 0 hex:0102
}

# S17: during it, again and again: while 64 MiB are being pinned.
punched_during() {
  serve victim "$1"
  connect_peer p "$1" "$port"
  client c
  for _ in 1 2 3; do
    ask c buffer b 64M
    local memory
    memory=$(memory_of c)
    tell c register r b 0 64M write "$1"
    # By another process, since the client itself waits.
    fallocate --punch-hole --offset 0 --length 64MiB "$memory"
    hear c
    [[ $answer = ok* ]] && ask c deregister r
    ask c drop b
  done
  does p write 0 hex:0304 --confirm
  ask victim expect b 0 hex:0304
}

huge_punched_after() {
  client c
  ask c memfd b 4M hugetlb
  ask c register r b 0 4M write,remote_read "$1"
  ask c listen "$(address_of "$1")" r
  connect_peer q "$1" "$(field port)"
  ask c punch b 0 4M
  does q write 0 seed:4096:2 --confirm
  ask c deregister r
}

# S18: bad_descriptors COUNT DEVICE
bad_descriptors() {
  local count=$1
  shift
  client c
  ask c badfds "$count" 42 "$1"
  is tried "$count"
  ask c status
  is regions 0
  # And the session is as good as before.
  ask c buffer b 4096
  ask c register r b 0 4096 write "$1"
  ask c deregister r
  ask c drop b
}

echo 8 >/proc/sys/vm/nr_hugepages
start_daemon || exit 1
each_device "S17: truncated before Register" truncated_before
each_device "S17: holes punched after Register" punched_after
each_device "S17: holes punched during Register" punched_during
each_device "S17: holes punched into huge pages" huge_punched_after
scenario "$RXE_DEVICE: S18: 1,000 bad descriptors" bad_descriptors 1000 "$RXE_DEVICE"
scenario "$SIW_DEVICE: S18: 100 bad descriptors" bad_descriptors 100 "$SIW_DEVICE"
topic_end
