# S08: which limit was hit, its value, and what is used of it.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# with_memlock KIB: the daemon, from now on in this shell, has no more.
with_memlock() { daemon_as=(prlimit "--memlock=$(($1 << 10)):$(($1 << 10))" "${daemon_as[@]}"); }

memlock_is_hit() {
  client c
  ask c buffer b 4M
  ask c register first b 0 1M write "$1"
  refused MEMLOCK c register r b 0 4M write "$1"
  is errno ENOMEM
  is limit_name RLIMIT_MEMLOCK_of_the_daemon
  is limit $((4 << 20))
  is used $((1 << 20))
  # Four ranges, of which the last is too much: none stays.
  refused MEMLOCK c register r:4 b 0 1M write "$1"
  rdma_expect_count mr 1 "$1" "$daemon"
  ask c register rest b 1M 3M write "$1"
  ask c deregister rest
  ask c deregister first
  ask c register r b 0 4M write "$1"
}

# siw asks for the limit in spite of CAP_IPC_LOCK.
with_ipc_lock() {
  with_memlock 4096
  start_own_daemon
  if [[ $1 = "$SIW_DEVICE" ]]; then
    memlock_is_hit "$1"
  else
    client c
    ask c buffer b 8M
    ask c register r b 0 8M write "$1"
  fi
}

without_ipc_lock() {
  daemon_as=(setpriv --reuid "$DAEMON_UID" --regid "$DAEMON_UID" --groups "$CLIENTS_GID"
    --inh-caps=-all --ambient-caps=-all --bounding-set=-all)
  with_memlock 4096
  start_own_daemon
  memlock_is_hit "$1"
}

# Half of the machine's memory, for all of a uid; each registration counts, though the pages are the same.
quota_of_bytes() {
  local half=$(($(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo) * 1024 / 2))
  local fit=$((half / (128 << 20))) i
  client c
  ask c buffer b 128M
  for ((i = 0; i < fit; i++)); do ask c register "r$i" b 0 128M read "$1"; done
  refused QUOTA_BYTES c register r b 0 128M read "$1"
  local limit
  limit=$(field limit)
  ((limit > half - (64 << 20) && limit < half + (64 << 20)))
  is used $((fit * (128 << 20)))
  rdma_expect_count mr "$fit" "$1" "$daemon"
  # Of another session of the same uid as well.
  client d
  ask d buffer b 128M
  refused QUOTA_BYTES d register r b 0 128M read "$1"
  # Freed by a death, at once.
  end_by c KILL
  within "$SECOND_MS" ask d register r b 0 128M read "$1"
}

# The kernel's own limit of a device: that of the daemon's cgroup.
device_limit() {
  local group=/sys/fs/cgroup/limited
  echo +rdma >/sys/fs/cgroup/cgroup.subtree_control
  mkdir -p "$group"
  start_own_daemon
  echo "$daemon" >"$group/cgroup.procs"
  client c
  ask c buffer b 4096
  ask c register first b 0 4096 write "$1"
  # A domain and a region: what was made before the daemon moved is not counted.
  grep -q "^$1 hca_handle=0 hca_object=2" "$group/rdma.current"
  echo "$1 hca_object=2" >"$group/rdma.max"
  refused DEVICE_LIMIT c register r b 0 4096 write "$1"
  is errno EAGAIN
  [[ $answer = *"rdma.max,_device_$1,"* ]]
  refused DEVICE_LIMIT c register r:3 b 0 1024 write "$1"
  ask c deregister first
  ask c register first b 0 4096 write "$1"
  echo "$1 hca_object=max" >"$group/rdma.max"
  ask c register last b 0 4096 write "$1"
}

# A call on both devices, of which the second one refuses: the first one's part goes back, and all that
# the kernel shows is as before. Ranges are more than one to begin with, so that the last one of them fails.
all_devices_or_none() {
  local group=/sys/fs/cgroup/limited-one most before
  echo +rdma >/sys/fs/cgroup/cgroup.subtree_control
  mkdir -p "$group"
  start_own_daemon
  echo "$daemon" >"$group/cgroup.procs"
  client c
  ask c buffer b 1M
  ask c register first b 0 4096 write all
  # A domain, that region, and two more of three.
  for most in 2 3 4; do
    echo "$1 hca_object=$most" >"$group/rdma.max"
    before=$(holdings)
    refused DEVICE_LIMIT c register r:3 b 0 65536 write all
    [[ $answer = *"rdma.max,_device_$1,"* ]]
    [[ $(holdings) = "$before" ]] || { echo "was $before"; echo "is $(holdings)"; return 1; }
    ask c status
    is regions 2
    is pinned_bytes 8192
  done
  echo "$1 hca_object=5" >"$group/rdma.max"
  ask c register r:3 b 0 65536 write all
  rdma_expect_count mr 4 "$RXE_DEVICE" "$daemon"
  rdma_expect_count mr 4 "$SIW_DEVICE" "$daemon"
}

# What the operator's file says.
by_policy() {
  local file=/run/limits.textproto
  cat >"$file" <<END
rules {
  name: "clients"
  uid: $CLIENT_UID
  limits { pinned_bytes: 1048576 regions: 6 }
}
END
  chmod 644 "$file"
  start_own_daemon --config "$file"
  client c
  ask c buffer b 2M
  ask c register first b 0 512K write "$1"
  refused QUOTA_BYTES c register r b 0 516K write "$1"
  is limit 1048576
  is used 524288
  # Each device counts: this is one page too many.
  refused QUOTA_BYTES c register r b 0 260K write all
  is used 524288
  ask c register r b 0 256K write all
  ask c deregister r
  refused QUOTA_REGIONS c register r:6 b 0 4096 write "$1"
  is limit 6
  is used 1
  refused QUOTA_REGIONS c register r:3 b 0 4096 write all
  rdma_expect_count mr 1 "" "$daemon"
  # More, at once, for those who are attached.
  sed -i 's/1048576/2097152/' "$file"
  kill -HUP "$daemon"
  within "$SECOND_MS" ask c register r b 0 1M write "$1"
  # Nobody else's business: root's clients have the built-in limits.
  client_as=()
  client d
  ask d buffer b 4M
  ask d register r b 0 4M write "$1"
}

each_device "S08: MEMLOCK with CAP_IPC_LOCK, where the driver asks for it" with_ipc_lock
each_device "S08: MEMLOCK without CAP_IPC_LOCK" without_ipc_lock
each_device "S08: DEVICE_LIMIT" device_limit
each_device "all devices of a call or none: DEVICE_LIMIT of one" all_devices_or_none
each_device "S08: QUOTA_BYTES and QUOTA_REGIONS by a policy" by_policy
start_daemon || exit 1
each_device "S08: QUOTA_BYTES" quota_of_bytes
topic_end
