# Long runs: what comes and goes many times leaves nothing, and all counts agree.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# "rss maps fds" of the daemon.
footprint() {
  local fds=(/proc/"$daemon"/fd/*)
  echo "$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$daemon/status")" \
    "$(wc -l <"/proc/$daemon/maps")" "${#fds[@]}"
}

# S06: CYCLES DEVICE. What is kept for a while - answered requests, mapped buffers - is full after the first.
cycles_leave_no_trace() {
  client c
  ask c cycles 2500 1 "$2"
  local before after rss maps fds
  before=$(footprint)
  patience=400 ask c cycles "$1" 2 "$2"
  after=$(footprint)
  echo "resident KiB, mappings, descriptors: $before, then $after"
  read -r rss maps fds <<<"$before"
  # shellcheck disable=SC2086  # three words
  set -- $after
  (($1 - rss < 2048 && $2 - maps < 32 && $3 - fds < 16))
  rdma_expect_count mr 0 "" "$daemon"
  echo "cycles: $before, then $after" >>"$scratch/said"
}

# walk CLIENTS OPERATIONS SEED: on both devices.
walk() {
  local code=0 said
  said=$(client_probe walk "$daemon" "$1" "$2" "$3" "$SECOND_MS" "$RXE_DEVICE,$SIW_DEVICE" \
    "${client_as[@]}" client_probe 2>&1) || code=$?
  echo "$said"
  echo "$said" >>"$scratch/said"
  return "$code"
}

start_daemon || exit 1
scenario "$RXE_DEVICE: S06: 20,000 cycles" cycles_leave_no_trace 20000 "$RXE_DEVICE"
scenario "a random walk of 20 clients: books, kernel and pins agree" walk 20 2000 20240705
sed 's/^/        /' "$scratch/said"
topic_end
