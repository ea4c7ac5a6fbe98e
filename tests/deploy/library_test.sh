#!/bin/bash
# README's client program, built as a user of libmrd-dev builds it, runs with libmrd1 against the packaged daemon; each
# header of the package can be included by itself.
set -euo pipefail
work=$(mktemp -d /tmp/mrd-library.XXXXXX)
mrd=
trap '[ -z "$mrd" ] || { kill $mrd; wait $mrd || true; }; rm -rf "$work"' EXIT

deploy/package --built "$PWD" "$work/dist" >/dev/null
for package in "$work"/dist/*.deb; do dpkg-deb -x "$package" "$work/root"; done
usr=$work/root/usr
libraries=$usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
export PKG_CONFIG_PATH=$libraries/pkgconfig
read -ra flags < <(pkg-config --define-variable=prefix="$usr" --cflags mrd)
read -ra libs < <(pkg-config --define-variable=prefix="$usr" --libs mrd)
[ "$(pkg-config --modversion mrd)" = "$(client/mrctl/mrctl --version | sed 's/^mrctl //')" ]

# shellcheck disable=SC2016  # No command.
sed -n '/^```cpp$/,/^```$/p' README.md | sed '1d;$d' >"$work/example.cc"
g++ -std=c++20 -Wall -Werror "${flags[@]}" "$work/example.cc" -o "$work/example" "${libs[@]}"
readelf -Wd "$work/example" | grep -q 'NEEDED.*\[libmrd\.so\.1\]'

(cd "$usr/include/mrd-1" && find . -name '*.h' | sort) >"$work/headers"
grep -qx ./client/client.h "$work/headers"
while read -r header; do
  echo "#include \"${header#./}\""
  # Not one of this tree: with only the package's folder in the path.
done <"$work/headers" >"$work/all.cc"
(cd "$work" && g++ -std=c++20 -fsyntax-only "${flags[@]}" all.cc)

"$usr/bin/mrd" --fabric soft --socket-dir "$work/run" 2>"$work/log" &
mrd=$!
for _ in $(seq 200); do
  ! grep -q ' ready: ' "$work/log" || break
  sleep 0.05
done
export MRD_SOCKET_DIR=$work/run LD_LIBRARY_PATH=$libraries
output=$("$work/example")
echo "$output"
grep -qE '^address 0x[0-9a-f]+ lkey 0x[0-9a-f]+ rkey 0x[0-9a-f]+$' <<<"$output"
grep -qE '^peers connect to port [1-9][0-9]*$' <<<"$output"
"$usr/bin/mrctl" register --size 4K --for 0
