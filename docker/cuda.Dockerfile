# Builds CUDA wheels: an old Debian, linked for a glibc that may be older still (GLIBC), its g++ or
# that of a newer one, one CUDA toolkit, one CPython, pinned build tools. torchwheel fills in the ARGs
# (`nox -s images`).
ARG BASE_IMAGE=debian:bullseye-slim
# From docker/python.Dockerfile.
ARG PYTHON_IMAGE
# Where the toolkit is put together: the stage `base` for SOURCE=pypi, else a Debian release.
ARG TOOLKIT_IMAGE=base
# A Debian whose g++ compiles, if that of the base is too old for torch's headers.
ARG COMPILER_IMAGE=base

FROM ${PYTHON_IMAGE} AS python

FROM ${BASE_IMAGE} AS base
USER root
# g++, and what the interpreter links to: Debian releases differ in two of the names.
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ca-certificates g++ libbz2-1.0 libc6-dev \
       liblzma5 zlib1g >/dev/null \
    && { apt-get install -y -qq --no-install-recommends libssl1.1 libffi7 >/dev/null 2>&1 \
         || apt-get install -y -qq --no-install-recommends libssl3 libffi8 >/dev/null; } \
    && rm -rf /var/lib/apt/lists/*
ARG CROSS=
RUN [ -z "${CROSS}" ] || { apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ${CROSS} >/dev/null \
    && rm -rf /var/lib/apt/lists/*; }
COPY --from=python /opt/python /opt/python
# pip would trust a bundle of its own: a caller's certificates (the secret `ca`) come by the system's.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1

FROM ${TOOLKIT_IMAGE} AS toolkit
ARG SOURCE=pypi
ARG VERSION
ARG PACKAGES=
ARG VENDOR_REPOSITORY=
COPY toolkit /recipe
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    PATH="$(echo /opt/python/*/bin):$PATH" SOURCE="${SOURCE}" VERSION="${VERSION}" \
    PACKAGES="${PACKAGES}" VENDOR_REPOSITORY="${VENDOR_REPOSITORY}" \
    bash /recipe/cuda-toolkit.sh /usr/local/cuda

FROM ${COMPILER_IMAGE} AS compiler
ARG COMPILER_IMAGE
COPY compiler /recipe
RUN mkdir -p /newer/opt && [ "${COMPILER_IMAGE}" = base ] || bash /recipe/newer-gxx.sh /newer

FROM base
RUN install -D "$(g++ -print-file-name=libgcc_eh.a)" /opt/compiler/libgcc_eh.a
COPY --from=compiler /newer /
ARG GLIBC=
COPY glibc-limit.py /opt/torchwheel/glibc-limit.py
RUN [ -z "${GLIBC}" ] \
    || "$(echo /opt/python/*/bin/python)" /opt/torchwheel/glibc-limit.py "${GLIBC}" /
COPY requirements.txt /opt/torchwheel/requirements.txt
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    python="$(echo /opt/python/*)" \
    && "$python/bin/pip" install --quiet --no-cache-dir --require-hashes --no-deps \
       -r /opt/torchwheel/requirements.txt \
    && ln -s "$(basename "$python")" /opt/python/cp39-cp39 \
    && useradd --create-home --uid 1000 builder \
    && install -d -o builder -g builder /project /output
COPY --from=toolkit /usr/local/cuda /usr/local/cuda
ENV CUDA_HOME=/usr/local/cuda
USER builder
