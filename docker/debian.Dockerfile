# A Debian release as it was on one day, so that its packages are the same whenever an image is built.
# torchwheel fills in the ARGs (`nox -s images`).
ARG BASE_IMAGE=debian:bullseye-slim
FROM ${BASE_IMAGE}
USER root
# The day, e.g. "20261030T120000Z", and the service that has the archive as it was then.
ARG SNAPSHOT
ARG SNAPSHOTS
# The release files of a past day are out of date by today's clock; their signatures still hold.
RUN for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do \
      [ ! -f "$list" ] || sed -i -E \
        "s#(https?|file)://?[^ ]*/(debian|debian-security)(/[0-9]+T[0-9]+Z)?/?( |\$)#${SNAPSHOTS}/\2/${SNAPSHOT}/\4#g" \
        "$list"; \
    done \
    && grep -rqs "${SNAPSHOT}" /etc/apt/sources.list /etc/apt/sources.list.d \
    || { echo "debian: expected sources of the archive in /etc/apt, found none: is ${BASE_IMAGE:-this} a Debian?" >&2; exit 1; }
# A base that is newer than the day goes back to it.
RUN printf 'Acquire::Check-Valid-Until "false";\nAcquire::Retries "5";\n' >/etc/apt/apt.conf.d/snapshot \
    && printf 'Package: *\nPin: release o=Debian\nPin-Priority: 1001\n' >/etc/apt/preferences.d/snapshot \
    && apt-get update -qq \
    && apt-get dist-upgrade -y -qq --allow-downgrades >/dev/null \
    && rm -rf /etc/apt/preferences.d/snapshot /var/lib/apt/lists/*
