# Tries wheels of another machine by emulation (qemu-user): a Debian release for that machine, with
# its own packages of torch and pytest. torchwheel fills in the ARG (`nox -s images`); the tests of
# the HIP libraries make it of a ROCm image.
ARG BASE_IMAGE=debian:forky-slim
FROM ${BASE_IMAGE}
USER root
RUN apt-get update -qq -o Acquire::Check-Valid-Until=false \
    && apt-get install -y -qq --no-install-recommends python3-pip python3-pytest python3-torch \
       >/dev/null \
    && rm -rf /var/lib/apt/lists/* \
    && { id builder >/dev/null 2>&1 || useradd --create-home --uid 1000 builder; }
# Debian's libtorch carries its version in its soname; torch's own wheels, and what is built for
# them, say libtorch.so.
RUN mkdir /opt/torch-names \
    && ln -s "$(find /usr/lib -name 'libtorch.so.2*' | head -n 1)" /opt/torch-names/libtorch.so
ENV LD_LIBRARY_PATH=/opt/torch-names
USER builder
