# Sourced in the guest: adds an RDMA device to a network link, and waits until it can really be used.
# shellcheck shell=bash

# rdma_plug TYPE DEVICE ADDR LINK: a device on a link that is there.
rdma_plug() {
  local type=$1 device=$2 addr=$3 link=$4
  rdma link add "$device" type "$type" netdev "$link" && rdma_wait_usable "$device" "$addr"
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
