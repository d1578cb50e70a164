# A ROCm image (docker/rocm.Dockerfile) with another CPython than its system's: an ordinary project
# is built for each. torchwheel fills in the ARGs (`nox -s images`).
ARG BASE_IMAGE
# From docker/python.Dockerfile, on the same system.
ARG PYTHON_IMAGE

FROM ${PYTHON_IMAGE} AS python

FROM ${BASE_IMAGE}
USER root
RUN rm -rf /opt/python
COPY --from=python /opt/python /opt/python
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.txt /opt/torchwheel/requirements.txt
# cibuildwheel looks for its own helper's interpreter under cp39.
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    python="$(echo /opt/python/*)" \
    && "$python/bin/pip" install --quiet --no-cache-dir --require-hashes --no-deps \
       -r /opt/torchwheel/requirements.txt \
    && ln -s "$(basename "$python")" /opt/python/cp39-cp39
USER builder
