# Sourced in the guest: what the kernel itself says is held on RDMA devices. What the kernel holds for its
# own use (MAD agents' PDs and queue pairs) is left out: such an entry has no pid.
# shellcheck shell=bash

# rdma_count mr|pd|qp|cq|cm_id|ctx [DEVICE [PID]]: prints how many are held by processes.
rdma_count() {
  # The kernel names the thread that made an object.
  local threads=() of=''
  if [[ -n ${3:-} ]]; then
    threads=("/proc/$3/task"/*)
    of=" ${threads[*]##*/} "
  fi
  # Lines and not --json, whose output rdma 6.1 breaks for some objects.
  rdma res show "$1" |
    awk -v device="${2:-}" -v threads="$of" '
      {
        entry_device = entry_pid = ""
        for (i = 1; i < NF; i++) {
          if ($i == "dev") entry_device = $(i + 1)
          if ($i == "link") { entry_device = $(i + 1); sub("/.*", "", entry_device) }
          if ($i == "pid") entry_pid = $(i + 1)
        }
        if (entry_pid == "") next
        if (device != "" && entry_device != device) next
        if (threads != "" && !index(threads, " " entry_pid " ")) next
        count++
      }
      END { print count + 0 }'
}

# rdma_expect_count OBJECT COUNT [DEVICE [PID]]: waits up to $RDMA_EXPECT_SECONDS (default 5) until that
# many are held; shows what is there if they never are.
rdma_expect_count() {
  local object=$1 count=$2 found
  local deadline=$((SECONDS + ${RDMA_EXPECT_SECONDS:-5}))
  shift 2
  until found=$(rdma_count "$object" "$@"); [[ $found = "$count" ]]; do
    if ((SECONDS > deadline)); then
      echo "$found entries of $object where $count were expected (${*:-all devices}):" >&2
      rdma res show "$object" >&2
      return 1
    fi
    sleep 0.05
  done
}
