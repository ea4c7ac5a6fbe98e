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
chown -R "$DAEMON_UID" /dev/infiniband
chmod -R u=rwX,go= /dev/infiniband

install -m 755 /job/bin/* /usr/local/bin/

# How much slower the guest is than the host decides how long the second lasts within which a dead
# client's things must be gone. What passes says how long it took.
native=$(</job/native-us)
here=$(client_probe calibrate)
here=${here#us=}
factor=$(((here + native / 2) / native))
((factor >= 1)) || factor=1
((factor <= 30)) || factor=30
export SECOND_MS=$((1000 * factor))
echo "calibration: here $here us, natively $native us: one second is taken as $SECOND_MS ms"

code=0
for topic in "$@"; do
  echo "== $topic"
  bash "/job/topics/$topic.sh"
  case $? in
    0) ;;
    10) code=1 ;;
    *) echo "FAILED  $topic: it did not come to its end"; code=1 ;;
  esac
done
exit "$code"
