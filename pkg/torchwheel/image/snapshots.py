"""Packages of a Debian release as they were on one day, from a service that keeps every state."""

import http.client
import os
import urllib.request
from collections.abc import Mapping
from urllib.error import HTTPError, URLError

from torchwheel.matrix.forms import SERVICE
from torchwheel.matrix.sections import Containers
from torchwheel_runtime.download import open_url, trusting
from torchwheel_runtime.errors import TorchwheelError, UsageError

VARIABLE = "TORCHWHEEL_SNAPSHOTS"
"""Names another service than the matrix, or NONE."""

NONE = "none"
"""Asks for the packages of today: an image that is made of them has another digest."""


def service_of(containers: Containers, environ: Mapping[str, str] = os.environ) -> str | None:
    """The address of the service; None if the images are made of the packages of today."""
    named = environ.get(VARIABLE) or containers.snapshot_service
    if containers.snapshot is None or named == NONE:
        return None
    if named is None:
        raise UsageError(
            "matrix.yaml: containers.snapshot: expected containers.snapshot_service beside it, "
            f"found none; name it there or in {VARIABLE}, or set that to `{NONE}`"
        )
    try:
        return SERVICE.check(named)
    except ValueError as error:
        raise UsageError(f"{VARIABLE}: {error}") from None


def require_snapshot(service: str, date: str, suite: str) -> None:
    """Ask the service for a release of that day, before an engine is started for nothing."""
    address = f"{service}/debian/{date}/dists/{suite}/InRelease"
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http or https
        open_url(request, trusting(None)).close()
    except (http.client.HTTPException, OSError, ValueError) as error:
        # An answer with an error says it itself; else the reason is inside.
        inside = isinstance(error, URLError) and not isinstance(error, HTTPError)
        found = getattr(error, "reason", error) if inside else error
        raise TorchwheelError(
            f"{address}: expected Debian's {suite} of that day, found: {found}; pull the image by "
            f"its digest, name a mirror in {VARIABLE}, or take the packages of today: "
            f"{VARIABLE}={NONE}"
        ) from None
