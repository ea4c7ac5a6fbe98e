#!/bin/bash
# deploy/package: what is in the packages, what they need, and that they are the same each time.
set -uo pipefail
export LC_ALL=C.UTF-8
work=$TEST_TMPDIR
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect WHAT WANTED HAD
expect() { [ "$2" = "$3" ] || fail "$1:"$'\n'"$(diff <(echo "$2") <(echo "$3"))"; }

export SOURCE_DATE_EPOCH=1700000000
deploy/package --built "$PWD" "$work/one" >"$work/paths" || { cat "$work/paths"; exit 1; }
version=$(client/mrctl/mrctl --version | sed 's/^mrctl //')
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
expect "the packages" \
  "$(for name in libmrd-dev libmrd1 mrctl mrd; do echo "$work/one/${name}_${version}_$arch.deb"; done)" "$(sort "$work/paths")"
deb() { echo "$work/one/$1_${version}_$arch.deb"; }
field() { dpkg-deb -f "$(deb "$1")" "$2"; }
for name in libmrd-dev libmrd1 mrctl mrd; do
  { dpkg-deb -x "$(deb $name)" "$work/$name" && dpkg-deb -e "$(deb $name)" "$work/$name.control"; } || fail "$name is no package"
done
[ "$failures" -eq 0 ] || exit 1

# Files and links of a package, but its documentation.
files() { (cd "$work/$1" && find . ! -type d ! -path './usr/share/doc/*' | sed 's/^\.//' | sort); }
expect "files of mrd" "$(sort <<END
/lib/systemd/system/mrd-admin.socket
/lib/systemd/system/mrd-attach.socket
/lib/systemd/system/mrd.service
/lib/systemd/system/mrd.socket
/usr/bin/mrd
/usr/lib/modules-load.d/mrd.conf
/usr/lib/sysusers.d/mrd.conf
/usr/lib/tmpfiles.d/mrd.conf
/usr/share/man/man5/mrd.textproto.5.gz
/usr/share/man/man8/mrd.8.gz
END
)" "$(files mrd)"
expect "files of mrctl" "/usr/bin/mrctl
/usr/share/bash-completion/completions/mrctl
/usr/share/man/man1/mrctl.1.gz" "$(files mrctl)"
expect "files of libmrd1" "/usr/lib/$multiarch/libmrd.so.1" "$(files libmrd1)"
expect "files of libmrd-dev but headers" "/usr/lib/$multiarch/libmrd.so
/usr/lib/$multiarch/pkgconfig/mrd.pc" "$(files libmrd-dev | grep -v '\.h$')"
expect "the link of libmrd-dev" "libmrd.so.1" "$(readlink "$work/libmrd-dev/usr/lib/$multiarch/libmrd.so")"
[ -d "$work/mrd/etc/mrd" ] || fail "mrd has no /etc/mrd"
[ ! -e "$work/mrd/etc/mrd/mrd.textproto" ] || fail "a policy that nobody wrote"
for name in mrd mrctl libmrd1 libmrd-dev; do
  [ -f "$work/$name/usr/share/doc/$name/copyright" ] || fail "$name has no copyright"
done
cmp -s "$work/mrd/usr/share/doc/mrd/examples/mrd.textproto.example" deploy/mrd.textproto.example ||
  fail "the example of a policy is another one"

# Nothing writable by others, nothing owned by whoever built it, no setuid.
for name in mrd mrctl libmrd1 libmrd-dev; do
  strange=$(dpkg-deb -c "$(deb $name)" | awk '$2 != "root/root" || $1 !~ /^([d-]rwxr-xr-x|-rw-r--r--|l)/')
  [ -z "$strange" ] || fail "$name: $strange"
done

depends() { # depends NAME PACKAGE...
  local package
  for package in "${@:2}"; do
    grep -qE "(^|, )$package( |,|$)" <<<"$(field "$1" Depends)" || fail "$1 does not depend on $package: $(field "$1" Depends)"
  done
}
depends mrd ibverbs-providers libibverbs1 librdmacm1 libsystemd0 'libgrpc\+\+1\.51' libc6
depends mrctl 'libgrpc\+\+1\.51' libc6
! grep -q ibverbs <<<"$(field mrctl Depends)" || fail "mrctl depends on libibverbs"
depends libmrd1 'libgrpc\+\+1\.51' libprotobuf32
depends libmrd-dev "libmrd1 \\(= $version\\)" libabsl-dev 'libprotobuf-dev \(>= 3\.21\)' 'libprotobuf-dev \(<< 3\.22\)'
grep -qx "libmrd 1 libmrd1 (>= $version)" "$work/libmrd1.control/shlibs" || fail "libmrd1 has no shlibs"

# The service is stopped by a removal only, and restarted once the new files are there.
control=$work/mrd.control
expect "stops" "$(printf '%s\n' mrd-admin.socket mrd-attach.socket mrd.service mrd.socket)" \
  "$(grep 'deb-systemd-invoke stop' "$control/prerm" | grep -oE "mrd[a-z.-]*" | sort)"
mkdir "$work/fakes"
printf '#!/bin/sh\necho "$*"\n' >"$work/fakes/deb-systemd-invoke"
chmod +x "$work/fakes/deb-systemd-invoke"
# Scripts as on a machine that systemd runs, and with what they say.
sed -i -e 's/-d \/run\/systemd\/system/-d \//' -e 's/>\/dev\/null//' "$control/prerm" "$control/postinst"
for action in upgrade deconfigure failed-upgrade; do
  said=$(PATH=$work/fakes:$PATH sh "$control/prerm" $action 9.9)
  [ -z "$said" ] || fail "prerm $action: $said"
done
said=$(PATH=$work/fakes:$PATH sh "$control/prerm" remove)
grep -q 'stop.*mrd.service' <<<"$said" || fail "prerm remove stops nothing: $said"
for command in systemctl deb-systemd-helper systemd-sysusers systemd-tmpfiles; do
  printf '#!/bin/sh\necho "%s $*"\n' $command >"$work/fakes/$command"
  chmod +x "$work/fakes/$command"
done
said=$(PATH=$work/fakes:$PATH sh "$control/postinst" configure)
expect "of a new installation" "systemd-sysusers mrd.conf
systemd-tmpfiles --create mrd.conf
start mrd-admin.socket mrd-attach.socket mrd.service mrd.socket" "$(grep -vE '^(deb-systemd-helper|systemctl)' <<<"$said")"
grep -qx 'deb-systemd-helper enable mrd.service' <<<"$said" || fail "it is not enabled: $said"
# Started where it is not; restarted in one step where it is, and the sockets never.
said=$(PATH=$work/fakes:$PATH sh "$control/postinst" configure 0.0.1)
expect "of an upgrade" "start mrd-admin.socket mrd-attach.socket mrd.service mrd.socket
try-restart mrd.service" "$(grep -E '^[a-z-]*(start|stop)' <<<"$said")"

# Programs as Debian has them: nothing but code, hardened, and no path of where they were built.
for file in "$work"/{mrd/usr/bin/mrd,mrctl/usr/bin/mrctl,libmrd1/usr/lib/"$multiarch"/libmrd.so.1}; do
  readelf -WS "$file" | grep -E '\.(symtab|debug_)' && fail "$file is not stripped"
  readelf -Wd "$file" | grep -E 'RPATH|RUNPATH' && fail "$file has a path to libraries"
  readelf -Wd "$file" | grep -q 'BIND_NOW' || fail "$file binds lazily"
  readelf -Wh "$file" | grep -q 'DYN' || fail "$file lies at a fixed address"
  strings -n 6 "$file" | grep -E "/(execroot|_bazel|root|srv|home|tmp/[a-z])" | grep -vE '^/root/?$' && fail "$file has a path of the build"
done
grep -rlE 'bazel|execroot' "$work"/{mrd,mrctl,libmrd1,libmrd-dev}/{lib,usr} --exclude-dir=doc 2>/dev/null | while read -r file; do
  echo "has a path of the build: $file"
done >"$work/private"
[ ! -s "$work/private" ] || fail "$(cat "$work/private")"

# The library exports what is mrd's.
library=$work/libmrd1/usr/lib/$multiarch/libmrd.so.1
readelf -Wd "$library" | grep -q 'SONAME.*\[libmrd\.so\.1\]' || fail "no SONAME libmrd.so.1"
nm -D --defined-only "$library" | awk '{print $NF}' | sed 's/@.*//' | c++filt >"$work/exported"
grep -q '^mrd::Client::Attach(' "$work/exported" || fail "mrd::Client::Attach is not exported"
foreign=$(grep -vE '(^|for |^guard variable for )mrd::|CreateMaybeMessage<mrd::|^(descriptor_table|TableStruct)_mrd_|^LIBMRD_1' \
  "$work/exported")
[ -z "$foreign" ] || fail "exported: $(head -n 20 <<<"$foreign")"

# The same sources make the same packages; another version is all that differs with --version.
deploy/package --built "$PWD" "$work/two" >/dev/null || fail "a second time"
expect "the same packages" "$(cd "$work/one" && sha256sum -- *)" "$(cd "$work/two" && sha256sum -- *)"
deploy/package --built "$PWD" --version 99.1~rc1 "$work/next" >"$work/paths" || fail "--version"
[ "$(dpkg-deb -f "$work/next/mrd_99.1~rc1_$arch.deb" Version)" = 99.1~rc1 ] || fail "--version: $(cat "$work/paths")"

deploy/package --help | grep -q '^package \[' || fail "--help"
for wrong in "--bogus" "--version x;y" "--version" "--built /no/such" "one two"; do
  # shellcheck disable=SC2086  # Several words.
  said=$(deploy/package --built "$PWD" $wrong 2>&1)
  status=$?
  { [ $status = 2 ] && grep -q '^package: ' <<<"$said"; } || fail "$wrong: status $status: $said"
done
[ "$failures" -eq 0 ] && echo "packages: good"
[ "$failures" -eq 0 ]
