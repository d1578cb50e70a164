#!/bin/bash
# Installs nothing: holds the versions that apt would take against those that were asked for.
#   expect-versions.sh SUITE PACKAGE[=VERSION]…   VERSION may end in *; SUITE may be empty
# A release of Debian moves, and a toolkit of another version must not come in unseen.
set -euf
suite=$1
shift
for package in "$@"; do
  name=${package%%=*}
  expected=${package#"$name"}
  found=$(apt-cache policy ${suite:+-t "$suite"} "$name" | sed -n 's/^ *Candidate: //p')
  # shellcheck disable=SC2254 # a pattern
  case "=${found:-none}" in
    ${expected:-=*}) [ "${found:-(none)}" != "(none)" ] && continue ;;
  esac
  case $found in '' | '(none)') found=none ;; esac
  echo "packages: expected $name ${expected#=}, found $found in this Debian;" \
    "pull the image by its digest, or move its snapshot or version in matrix.yaml" >&2
  exit 1
done
