# Builds ROCm wheels: a new Debian for its HIP and its clang, and beside them the headers and
# libraries of an old one (BUILD_BASE) in /opt/sysroot, whose glibc is what the wheels need at most.
# torchwheel fills in the ARGs (`nox -s images`).
ARG BASE_IMAGE=debian:forky-slim
ARG BUILD_BASE=debian:bullseye-slim

FROM ${BUILD_BASE} AS sysroot
USER root
WORKDIR /packages
# Unpacked, not installed; an absolute link would lead out of the folder, to the new system's files.
RUN apt-get update -qq \
    && depends() { apt-cache depends --important "$1" | sed -n 's/.* Depends: //p'; } \
    && gcc="$(depends g++ | sed -n 's/^g++-\([0-9]*\).*/\1/p')" \
    && apt-get download -qq libc6 libc6-dev linux-libc-dev libgcc-s1 "libgcc-$gcc-dev" \
       libstdc++6 "libstdc++-$gcc-dev" \
    && for package in *.deb; do dpkg-deb --extract "$package" /opt/sysroot; done \
    && find /opt/sysroot -type l -lname '/*' \
       -exec sh -c 'ln -srf "/opt/sysroot$(readlink "$1")" "$1"' - {} \; \
    && rm -rf /opt/sysroot/etc /opt/sysroot/usr/share /opt/sysroot/usr/lib/*/gconv

FROM ${BASE_IMAGE}
USER root
# Left out of the packages: what no build reads, and clang's runtimes but the one hipcc links.
RUN llvm='/usr/lib/llvm-*' runtimes='/usr/lib/llvm-*/lib/clang/*/lib/linux' \
    && printf 'path-exclude=%s/*\n' /usr/share/doc /usr/share/info /usr/share/locale \
       /usr/share/man "$runtimes" >/etc/dpkg/dpkg.cfg.d/small \
    && printf 'path-exclude=%s\n' "$llvm/bin/c-index-test" "$llvm/bin/llvm-exegesis" \
       >>/etc/dpkg/dpkg.cfg.d/small \
    && printf 'path-include=%s\n' '/usr/share/doc/*/copyright' "$runtimes/*builtins*" \
       >>/etc/dpkg/dpkg.cfg.d/small
# distribution: PACKAGES of this Debian, those of APT_TARGET (e.g. experimental) first;
# vendor: PACKAGES of VENDOR_REPOSITORY ("URI suite component"), signed by vendor.asc, beside this.
ARG SOURCE=distribution
ARG VERSION=6.4
ARG PACKAGES="hipcc libamdhip64-dev rocm-device-libs-21"
ARG APT_TARGET=
ARG VENDOR_REPOSITORY=
RUN --mount=type=bind,target=/recipe \
    apt=/etc/apt/sources.list.d; \
    case "${SOURCE}" in \
      distribution) \
        for list in /etc/apt/sources.list "$apt"/*; do \
          [ -n "${APT_TARGET}" ] && [ -f "$list" ] || continue; \
          sed -E "s/^(deb .*) [a-z]+ main.*/\1 ${APT_TARGET} main/; s/^Suites: [a-z]+( .*)?$/Suites: ${APT_TARGET}/" \
            "$list" >"$apt/target-${list##*/}"; \
        done ;; \
      vendor) \
        install -m 644 /recipe/vendor.asc /usr/share/keyrings/vendor.asc \
        && echo "deb [signed-by=/usr/share/keyrings/vendor.asc] ${VENDOR_REPOSITORY}" \
             >"$apt/vendor.list" ;; \
      *) echo "rocm: SOURCE=${SOURCE}: expected distribution or vendor" >&2; exit 2 ;; \
    esac \
    && apt-get update -qq \
    && bash /recipe/expect-versions.sh "${APT_TARGET}" ${PACKAGES} \
    && apt-get install -y -qq --no-install-recommends ${APT_TARGET:+-t "${APT_TARGET}"} \
       binutils ca-certificates python3 python3-venv ${PACKAGES} >/dev/null \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
# AMD's packages make /opt/rocm; for Debian's, which lie all over /usr, the same folders are links.
# clang takes ROCM_PATH at its word and looks for the device libraries there.
RUN [ -x /opt/rocm/bin/hipcc ] || { \
      bitcode="$(find /usr/lib -type d -path '*/amdgcn/bitcode')" \
      && mkdir -p /opt/rocm/bin /opt/rocm/include /opt/rocm/lib /opt/rocm/share \
      && ln -s /usr/bin/hip* /opt/rocm/bin/ \
      && ln -s /usr/include/hip /opt/rocm/include/ \
      && ln -s /usr/lib/*/libamdhip64.so* /opt/rocm/lib/ \
      && ln -s /usr/share/hip /opt/rocm/share/ \
      && ln -s "${bitcode%/bitcode}" /opt/rocm/amdgcn \
      && ln -s "${bitcode%/lib/clang/*}" /opt/rocm/llvm; \
    }
COPY --from=sysroot /opt/sysroot /opt/sysroot
ENV ROCM_PATH=/opt/rocm HIP_CLANG_PATH=/opt/rocm/llvm/bin CXX=/opt/rocm/llvm/bin/clang++ \
    TORCHWHEEL_SYSROOT=/opt/sysroot
# One release, the one that was asked for: a wheel's name will say it.
RUN found="$("${ROCM_PATH}/bin/hipconfig" --version)" \
    && case "$found" in "${VERSION}".*) ;; \
      *) echo "rocm: expected HIP ${VERSION}, found ${found:-none} in these packages; pull the image by its digest, or move its snapshot or version in matrix.yaml" >&2; exit 1 ;; \
    esac
ARG GLIBC=
COPY glibc-limit.py /opt/torchwheel/glibc-limit.py
RUN [ -z "${GLIBC}" ] || python3 /opt/torchwheel/glibc-limit.py "${GLIBC}" /opt/sysroot
COPY requirements.txt /opt/torchwheel/requirements.txt
# cibuildwheel looks for its interpreters there, and for its own helper's under cp39.
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    tag="$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')" \
    && python3 -m venv "/opt/python/$tag-$tag" \
    && "/opt/python/$tag-$tag/bin/pip" install --quiet --no-cache-dir --require-hashes --no-deps \
       -r /opt/torchwheel/requirements.txt \
    && ln -s "$tag-$tag" /opt/python/cp39-cp39 \
    && useradd --create-home --uid 1000 builder \
    && install -d -o builder -g builder /project /output
LABEL org.opencontainers.image.title="ROCm ${VERSION} wheels" torchwheel.toolkit="rocm ${VERSION}"
USER builder
