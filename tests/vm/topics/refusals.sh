# Each kind of refusal, on real devices: for its own reason, and leaving nothing (which `scenario` sees to).
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ranges() {
  client c
  ask c buffer b 8192
  refused INVALID_LENGTH c register r b 0 0 write "$1"
  refused OUT_OF_RANGE c register r b 0 8193 write "$1"
  is limit 8192
  refused OUT_OF_RANGE c register r b 8192 1 write "$1"
  refused OUT_OF_RANGE c register r b 0 0xffffffffffffffff write "$1"
  refused OUT_OF_RANGE c register r b 4096 0xfffffffffffff000 write "$1"
  # siw itself would take any length.
  refused OUT_OF_RANGE c register r b 0 0x7fffffffffff write "$1"
  refused INVALID_LENGTH c register r:10001 b 0 0 write "$1"
  is limit 10000
  mrs_are_zero
  ask c register r b 0 8192 write "$1"
}

mrs_are_zero() { rdma_expect_count mr 0 "" "$daemon"; }

access() {
  client c
  ask c buffer b 8192
  refused ACCESS_INVALID c register r b 0 4096 remote_write "$1"
  refused ACCESS_INVALID c register r b 0 4096 remote_atomic,remote_read "$1"
  refused ACCESS_INVALID c register r b 0 4096 write,hugetlb "$1"
  refused ACCESS_UNSUPPORTED c register r b 0 4096 write,on_demand "$1"
  if [[ $1 = "$SIW_DEVICE" ]]; then
    refused ACCESS_UNSUPPORTED c register r b 0 4096 local_write,remote_atomic "$1"
  else
    ask c register r b 0 4096 local_write,remote_atomic "$1"
    ask c deregister r
  fi
  mrs_are_zero
}

buffers() {
  client c
  ask c memfd unsealed 8192 unsealed
  refused NOT_SEALED c register r unsealed 0 8192 write "$1"
  ask c memfd sparse 8192 sparse
  refused NOT_POPULATED c register r sparse 0 8192 write "$1"
  ask c memfd read_only 8192 read_only
  refused BUFFER_READ_ONLY c register r read_only 0 8192 read "$1"
  ask c bad pipe pipe
  refused NOT_SHARED_MEMORY c register r pipe 0 4096 write "$1"
  mrs_are_zero
}

huge_pages() {
  client c
  ask c memfd huge 4M hugetlb
  refused MISALIGNED c register r huge 0 4096 write,hugetlb "$1"
  refused MISALIGNED c register r huge 4096 2M write,hugetlb "$1"
  ask c memfd sparse 4M hugetlb sparse
  refused NOT_POPULATED c register r sparse 0 4M write "$1"
  mrs_are_zero
}

# rxe and siw of 6.1 take none.
dma_bufs() {
  client c
  ask c dmabuf b 8192
  refused UNSUPPORTED c register r b 0 8192 write "$1"
  is errno EOPNOTSUPP
  mrs_are_zero
}

devices() {
  client c
  ask c buffer b 8192
  refused DEVICE_UNKNOWN c register r b 0 8192 write mlx5_9
  refused DEVICE_UNKNOWN c register r b 0 8192 write "$RXE_DEVICE,mlx5_9"
  refused REQUEST_INVALID c register r b 0 8192 write "$RXE_DEVICE,$RXE_DEVICE"
  mrs_are_zero
}

# All of it or nothing: what was registered already goes back.
all_or_none() {
  client c
  # Good on rxe, at an address that siw cannot take.
  ask c memfd b 163840 at 0x100000000000
  refused ADDRESS_UNUSABLE c register r:10 b 0 16384 write "$RXE_DEVICE,$SIW_DEVICE"
  mrs_are_zero
  ask c status
  is regions 0
  is pinned_bytes 0
  # And the ranges before the one that does not lie within.
  refused OUT_OF_RANGE c register r:11 b 0 16384 write "$RXE_DEVICE"
  mrs_are_zero
  ask c register r:10 b 0 16384 write "$RXE_DEVICE"
}

endpoints() {
  with_region c "$RXE_DEVICE"
  refused ADDRESS_INVALID c listen 10.9.7.7 r
  refused ADDRESS_INVALID c listen rxe0 r
  refused CONNECTION_FAILED c connect 10.9.0.1:7999 r
}

echo 8 >/proc/sys/vm/nr_hugepages
chgrp "$CLIENTS_GID" /dev/udmabuf 2>/dev/null && chmod 660 /dev/udmabuf
start_daemon || exit 1
each_device "ranges" ranges
each_device "access" access
each_device "buffers" buffers
each_device "huge pages" huge_pages
[[ ! -e /dev/udmabuf ]] || each_device "dma-bufs" dma_bufs
scenario "devices" devices
scenario "all of a call or none" all_or_none
scenario "endpoints" endpoints
topic_end
