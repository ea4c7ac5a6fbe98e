# Sourced by build and run: where things lie, and how the image that belongs to this source tree and
# this host is called. Both names carry a hash of what goes in, so "it exists" means "it is up to date".
# shellcheck shell=bash

vm_source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vm_cache=${MRD_VM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/mrd-vm}
[[ $vm_cache = /* ]] || vm_cache=$PWD/$vm_cache

# depmod and modprobe live in sbin, which an ordinary user's PATH may lack.
PATH=$PATH:/usr/sbin:/sbin

vm_say() { echo "vm: $*" >&2; }
vm_die() { echo "vm: $*" >&2; exit 2; }

# The kernel is the one whose headers are installed, because siw.ko is built against them: neither
# the newest in the archive nor the one that the host runs. Sets kernel_release and kernel_version.
vm_find_kernel() {
  kernel_release=$(dpkg-query -W -f '${Depends}' linux-headers-amd64 2>/dev/null |
    sed -n 's/^linux-headers-\([^ ,]*\).*/\1/p') || true
  [[ -n $kernel_release ]] || vm_die "package linux-headers-amd64 is not installed"
  kernel_version=$(dpkg-query -W -f '${Version}' "linux-headers-$kernel_release")
}

# Sets image, the folder of kernel, modules and initramfs, and peer, the path of the stock peer.
vm_find_image() {
  vm_find_kernel
  local hash
  hash=$(cd "$vm_source" && cat build lib.sh extract-vmlinux guest/init /bin/busybox 2>/dev/null |
    sha256sum | cut -c1-12)
  image=$vm_cache/images/$kernel_release-$kernel_version-$hash
  hash=$(cat "$vm_source"/peer/*.[ch] | sha256sum | cut -c1-12)
  peer=$vm_cache/peers/$hash/peer
}
