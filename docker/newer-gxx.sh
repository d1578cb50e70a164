#!/bin/bash
# Lays the g++ of this Debian into the folder $1, for an older Debian. The programs bring their own
# loader and libraries. What they compile takes the older system's C library, and has libstdc++ inside:
# that system's, and those of the wheels' users, are too old for it.
set -euo pipefail
to=$1
own=/opt/compiler
apt-get update -qq
apt-get install -y -qq --no-install-recommends g++ patchelf >/dev/null
release=$(g++ -dumpversion)
machine=$(g++ -print-multiarch)
home=/usr/lib/gcc/$machine/$release
mkdir -p "$to$own"
for package in cpp gcc g++ libgcc-dev libstdc++-dev; do
  dpkg -L "${package%-dev}-$release${package#"${package%-dev}"}"
done | grep -E "^(/usr/bin|$home|/usr/include)/" | tar -c --no-recursion -P -T - | tar -x -P --transform "s#^/#$to/#S"
for tool in cpp gcc g++; do
  ln -sf "$tool-$release" "$to/usr/bin/$tool"
  ln -sf "$machine-$tool-$release" "$to/usr/bin/$machine-$tool"
done
for tool in as ld; do cp -L "/usr/bin/$tool" "$to$home/$tool"; done

loader=$(patchelf --print-interpreter "$to$home/cc1plus")
cp -L "$loader" "$to$own/"
find "$to/usr/bin" "$to$home" -type f -perm /111 | while read -r program; do
  patchelf --print-interpreter "$program" >/dev/null 2>&1 || continue
  ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | xargs cp -nL -t "$to$own"
  patchelf --set-interpreter "$own/${loader##*/}" --force-rpath --set-rpath "$own" "$program"
done

# What this system's libstdc++.a needs of its glibc, and an older one lacks.
cat >/tmp/older.c <<'C'
#include <sys/random.h>
char __libc_single_threaded; /* 0: there may be threads */
unsigned arc4random(void) {
  unsigned drawn;
  while (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) continue;
  return drawn;
}
C
gcc -O2 -fPIC -fvisibility=hidden -c /tmp/older.c -o /tmp/older.o
ar rs "$to$home/libstdc++.a" /tmp/older.o
rm "$to$home/libstdc++.so"
echo 'INPUT(libstdc++.a AS_NEEDED(-lpthread))' >"$to$home/libstdc++.so"
# The unwinder of this system asks its own loader for help.
ln -sf "$own/libgcc_eh.a" "$to$home/libgcc_eh.a"
g++ -dumpspecs | sed '/^\*link:$/{n;s/^/--exclude-libs libstdc++.a /}' >"$to$home/specs"
