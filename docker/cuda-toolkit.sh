#!/bin/bash
# Puts the part of CUDA that builds wheels (compiler, headers, static runtime) into the folder $1,
# laid out as NVIDIA's own: bin, nvvm, include, lib64, and targets/sbsa-linux for linux_aarch64.
#   SOURCE=pypi          the wheels in toolkit.txt (and toolkit-aarch64.txt), each with its hash
#   SOURCE=distribution  PACKAGES of this Debian release, contrib and non-free
#   SOURCE=vendor        PACKAGES of the repository VENDOR_REPOSITORY, signed by vendor.asc
# The programs need glibc 2.7 only, so the folder works on older systems than this one.
set -euo pipefail
target=$1
here=$(dirname "$(readlink -f "$0")")

from_pypi() { # wheels, folder, pip's options
  local wheels=$1 to=$2 folder
  shift 2
  folder=$(mktemp -d)
  pip install --quiet --no-deps --require-hashes --no-compile --target "$folder" "$@" \
    --requirement "$wheels"
  mkdir -p "$(dirname "$to")"
  mv "$folder"/nvidia/cu* "$to"
  mv "$to/lib" "$to/lib64"
  ln -s lib64 "$to/lib"
  rm -rf "$folder"
}

# Unpacked, not installed: what they depend on is graphics, profilers and gigabytes of libraries.
unpack_packages() { # folder
  local folder=$1 package
  mkdir -p "$folder"
  (
    cd "$(mktemp -d)"
    # shellcheck disable=SC2086 # a list
    apt-get download -qq ${PACKAGES}
    for package in *.deb; do
      # tar says so when a package has none of one kind: what is missing in the end shows below.
      dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --wildcards \
        '*/bin/nvcc' '*/bin/cudafe++' '*/bin/fatbinary' '*/bin/nvlink' '*/bin/ptxas' '*/bin/bin2c' \
        '*/cicc' '*/crt/*.stub' '*/libdevice.10.bc' '*/include/*' '*/libcudart_static.a' \
        '*/libcudadevrt.a' 2>/dev/null || true
    done
    rm -rf "$PWD"
  )
}

# From wherever Debian or NVIDIA has a file to where NVIDIA's layout has it.
place() { # name, folder
  local found
  found=$(find "$unpacked" -name "$1" -type f -size +1k -printf '%s %p\n' | sort -n | tail -n 1)
  [ -n "$found" ] || { echo "cuda-toolkit: no $1 in these packages: ${PACKAGES}" >&2; exit 1; }
  install -D "${found#* }" "$target/$2/$1"
}

case $SOURCE in
  pypi)
    from_pypi "$here/toolkit.txt" "$target"
    if [ -s "$here/toolkit-aarch64.txt" ]; then
      from_pypi "$here/toolkit-aarch64.txt" "$target/targets/sbsa-linux" --only-binary=:all: \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
        --platform manylinux2014_aarch64
    fi
    ;;
  distribution | vendor)
    if [ "$SOURCE" = vendor ]; then
      install -m 644 "$here/vendor.asc" /usr/share/keyrings/vendor.asc
      echo "deb [signed-by=/usr/share/keyrings/vendor.asc] ${VENDOR_REPOSITORY}" \
        >/etc/apt/sources.list.d/vendor.list
    else
      for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        [ -f "$list" ] && sed -i -E 's/^(deb .* main|Components: main).*/\1 contrib non-free/' "$list"
      done
    fi
    apt-get update -qq
    # shellcheck disable=SC2086 # a list
    bash "$here/expect-versions.sh" "" ${PACKAGES}
    unpacked=$(mktemp -d)
    unpack_packages "$unpacked"
    for program in nvcc cudafe++ fatbinary nvlink ptxas bin2c; do place $program bin; done
    for stub in link.stub prelink.stub; do place $stub bin/crt; done
    place cicc nvvm/bin
    place libdevice.10.bc nvvm/libdevice
    for library in libcudart_static.a libcudadevrt.a; do place $library lib64; done
    ln -s lib64 "$target/lib"
    find "$unpacked" -name cuda_runtime.h -printf '%h\n' | while read -r include; do
      cp -r "$include" "$target/include"
    done
    cat >"$target/bin/nvcc.profile" <<'PROFILE'
TOP                 = $(_HERE_)/..
CICC_PATH           = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR  = $(TOP)/nvvm/libdevice
PATH               += $(CICC_PATH):$(_HERE_):
INCLUDES           += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES          =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
    rm -rf "$unpacked"
    ;;
  *)
    echo "cuda-toolkit: SOURCE=$SOURCE: expected pypi, distribution or vendor" >&2
    exit 2
    ;;
esac

# One release, the one that was asked for: a wheel's name will say it.
for tool in nvcc ptxas; do
  found=$("$target/bin/$tool" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  [ "$found" = "$VERSION" ] || {
    echo "cuda-toolkit: expected $tool of CUDA $VERSION, found ${found:-none}; pull the image by its" \
      "digest, or move its snapshot or version in matrix.yaml" >&2
    exit 1
  }
done
