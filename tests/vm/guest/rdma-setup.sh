# Sourced in the guest: brings up one soft-RoCE and one soft-iWARP device, each over a dummy link of its
# own, and comes back when both can really be used. Sets and exports:
#   RXE_DEVICE=rxe0 RXE_ADDR=10.9.0.1   RoCE
#   SIW_DEVICE=siw0 SIW_ADDR=10.9.1.1   iWARP
# shellcheck shell=bash
# shellcheck disable=SC1091  # the guest's path
source /vm/guest/rdma-plug.sh

export RXE_DEVICE=rxe0 RXE_ADDR=10.9.0.1
export SIW_DEVICE=siw0 SIW_ADDR=10.9.1.1

# rdma_setup_device TYPE DEVICE ADDR LINK
rdma_setup_device() {
  local type=$1 device=$2 addr=$3 link=$4
  ip link add "$link" type dummy &&
    ip addr add "$addr/24" dev "$link" &&
    ip link set "$link" up &&
    rdma_plug "$type" "$device" "$addr" "$link"
}

modprobe -a rdma_rxe siw rdma_ucm dummy veth &&
  rdma_setup_device rxe "$RXE_DEVICE" "$RXE_ADDR" dummy-rxe &&
  rdma_setup_device siw "$SIW_DEVICE" "$SIW_ADDR" dummy-siw
