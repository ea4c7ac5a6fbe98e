#!/bin/bash
# Runs in the guest: tests/vm/run -j DIR tests/vm/topics/run.sh TOPIC...
# DIR holds bin/ (mrd, mrctl, client_probe), topics/ (this folder) and native-us, the time that
# `client_probe calibrate` takes on the host. tests/vm/suite makes it.
# shellcheck disable=SC1091  # the guest's paths
set -uo pipefail
source /vm/guest/rdma-setup.sh || exit 1

export DAEMON_UID=4710 CLIENT_UID=4711 CLIENTS_GID=4712
echo "mrd-clients:x:$CLIENTS_GID:" >>/etc/group
# Nobody but the daemon, and root's peers.
chown "$DAEMON_UID" /dev/infiniband/*
chmod 600 /dev/infiniband/*

install -m 755 /job/bin/* /usr/local/bin/

# keep_in_memory PROGRAM...: with their libraries. What comes from the host takes a number of requests to
# it for each open, and the topics start programs by the thousand: a changed time has the overlay copy a
# file up into memory.
keep_in_memory() {
  local programs
  programs=$(type -P "$@")
  # shellcheck disable=SC2086  # one a line, without spaces
  {
    echo "$programs"
    ldd $programs 2>/dev/null | grep -o '/[^ :]*' | sort -u
  } | xargs realpath | sort -u | xargs touch -c
}
keep_in_memory mrd mrctl client_probe peer rdma ip bash sh awk sed grep cat chmod chown cp date fallocate \
  head id kill ln ls mkdir mkfifo mktemp mount mv od prlimit readlink rm setpriv sleep sort stat tail \
  timeout touch tr true unshare wc

source /job/topics/calibrate.sh

code=0
for topic in "$@"; do
  echo "== $topic"
  calibrate
  bash "/job/topics/$topic.sh"
  case $? in
    0) ;;
    10) code=1 ;;
    *) echo "FAILED  $topic: it did not come to its end"; code=1 ;;
  esac
done
exit "$code"
