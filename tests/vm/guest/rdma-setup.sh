# Sourced in the guest: brings up one soft-RoCE and one soft-iWARP device, each over a dummy link of its
# own, and comes back when both can really be used. Sets and exports:
#   RXE_DEVICE=rxe0 RXE_ADDR=10.9.0.1   RoCE
#   SIW_DEVICE=siw0 SIW_ADDR=10.9.1.1   iWARP
# shellcheck shell=bash

export RXE_DEVICE=rxe0 RXE_ADDR=10.9.0.1
export SIW_DEVICE=siw0 SIW_ADDR=10.9.1.1

# rdma_setup_device TYPE DEVICE ADDR LINK
rdma_setup_device() {
  local type=$1 device=$2 addr=$3 link=$4
  ip link add "$link" type dummy &&
    ip addr add "$addr/24" dev "$link" &&
    ip link set "$link" up &&
    rdma link add "$device" type "$type" netdev "$link" &&
    rdma_wait_usable "$device" "$addr"
}

# rdma_wait_usable DEVICE ADDR [SECONDS]: GIDs follow the link's addresses from a work queue, and
# rdma_cm binds by them; a device that is listed may thus refuse its address for a moment. So ask
# rdma_cm itself, which also asks for an active port.
rdma_wait_usable() {
  local device=$1 addr=$2 answer
  local deadline=$((SECONDS + ${3:-10}))
  until answer=$(peer --probe "$addr") && [[ $answer = *" device=$device" ]]; do
    if ((SECONDS >= deadline)); then
      echo "rdma-setup: $device at $addr is not usable: $answer" >&2
      return 1
    fi
    sleep 0.05
  done
}

modprobe -a rdma_rxe siw rdma_ucm dummy veth &&
  rdma_setup_device rxe "$RXE_DEVICE" "$RXE_ADDR" dummy-rxe &&
  rdma_setup_device siw "$SIW_DEVICE" "$SIW_ADDR" dummy-siw
