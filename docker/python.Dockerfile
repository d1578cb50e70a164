# One CPython at /opt/python/cpXY-cpXY, where cibuildwheel looks for it; toolkit images copy it from
# here. Compiled on BASE_IMAGE, so that it runs on that system's glibc.
# torchwheel fills in the ARGs (`nox -s images`); the release and its hash are its data.
ARG BASE_IMAGE=debian:bullseye-slim

FROM ${BASE_IMAGE} AS build
USER root
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ca-certificates curl gcc libbz2-dev \
       libc6-dev libffi-dev liblzma-dev libssl-dev make xz-utils zlib1g-dev >/dev/null \
    && rm -rf /var/lib/apt/lists/*
# E.g. "3.12.3", the archive's sha256, and addresses of it: the first that answers rightly is taken.
ARG VERSION
ARG SHA256
ARG SOURCES
WORKDIR /src
RUN --mount=type=secret,id=ca,target=/run/ca.crt \
    ca=/etc/ssl/certs/ca-certificates.crt; [ ! -s /run/ca.crt ] || ca=/run/ca.crt; \
    for source in ${SOURCES}; do \
      curl -fsSL --retry 2 --cacert "$ca" -o python.tar "$source" \
        && echo "${SHA256}  python.tar" | sha256sum -c --quiet - && break; \
      rm -f python.tar; \
    done; \
    [ -f python.tar ] || { echo "CPython ${VERSION}: no source has the archive with sha256 ${SHA256}" >&2; exit 1; }; \
    tar -xf python.tar --strip-components=1
# Not PGO: it builds wheels and runs tests, and an hour of training is not worth it.
RUN tag="cp$(echo "${VERSION}" | cut -d. -f1,2 | tr -d .)" \
    && ./configure -q --prefix="/opt/python/$tag-$tag" --disable-test-modules \
       --with-ensurepip=install >/dev/null \
    && make -s -j"$(nproc)" >/dev/null 2>make.log || { tail -n 20 make.log; exit 1; } \
    && make -s install >/dev/null 2>&1 \
    && cd "/opt/python/$tag-$tag" \
    && ln -s python3 bin/python && ln -sf pip3 bin/pip \
    && find . -name '*.a' -delete && find . -depth -name test -type d -exec rm -rf {} + \
    && find . -depth -name __pycache__ -exec rm -rf {} + \
    && strip --strip-unneeded "bin/python${VERSION%.*}" \
    && bin/python -c "import bz2, ctypes, hashlib, lzma, ssl, venv, zlib"

FROM scratch
COPY --from=build /opt/python /opt/python
