"""Debian as images need it: each release's C library and compiler, and its packages of one day.

A service that keeps every state of the archive has them.
"""

import http.client
import os
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.error import HTTPError, URLError

from torchwheel.data import read
from torchwheel.matrix.forms import SERVICE
from torchwheel.matrix.sections import Containers, Toolkit
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import open_url
from torchwheel_runtime.toolkit.host import HostCompiler, is_within
from torchwheel_runtime.validate.torch_rules import cxx_bounds
from torchwheel_runtime.versions import version_numbers

_SERVICE = "TORCHWHEEL_SNAPSHOTS"
"""Names another service of Debian's archive than the matrix, or _TODAY."""
_TODAY = "none"
"""Asks for the packages of today: an image that is made of them has another digest."""


def service_of(containers: Containers, environ: Mapping[str, str] = os.environ) -> str | None:
    """The address of Debian's archive as it was on any day; None for the packages of today."""
    named = environ.get(_SERVICE) or containers.snapshot_service
    if containers.snapshot is None or named == _TODAY:
        return None
    if named is None:
        raise UsageError(
            "matrix.yaml: containers.snapshot: expected containers.snapshot_service beside it, "
            f"found none; name it there or in {_SERVICE}, or set that to `{_TODAY}`"
        )
    try:
        return SERVICE.check(named)
    except ValueError as error:
        raise UsageError(f"{_SERVICE}: {error}") from None


def require_snapshot(service: str, date: str, suite: str) -> None:
    """Ask the service for a release of that day, before an engine is started for nothing."""
    address = f"{service}/debian/{date}/dists/{suite}/InRelease"
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http or https
        open_url(request, ssl.create_default_context()).close()
    except (http.client.HTTPException, OSError, ValueError) as error:
        # An answer with an error says it itself; else the reason is inside.
        inside = isinstance(error, URLError) and not isinstance(error, HTTPError)
        found = getattr(error, "reason", error) if inside else error
        raise TorchwheelError(
            f"{address}: expected Debian's {suite} of that day, found: {found}; pull the image by "
            f"its digest, name a mirror in {_SERVICE}, or take the packages of today: "
            f"{_SERVICE}={_TODAY}"
        ) from None


def _releases() -> dict[str, dict[str, str]]:
    """The C library and the gcc of Debian releases, oldest first."""
    return {name: facts for name, facts in read("debian.json").items() if name != "comment"}


def newest_glibc(containers: Containers) -> str:
    """The newest C library that wheels may need; empty for any.

    Raises:
        UsageError: wheels that are linked on the base cannot keep to it.
    """
    newest, known = containers.glibc or "", _releases().get(containers.base)
    if newest and known and version_numbers(newest) < version_numbers(known["links_for"]):
        raise UsageError(
            f"matrix.yaml: containers.glibc: expected {known['links_for']} or newer, as wheels "
            f"that are linked on {containers.base} (glibc {known['glibc']}) may need it, found "
            f"{newest}; raise it, or name an older base"
        )
    return newest


def gxx_suite(base: str, toolkit: Toolkit, standard: int) -> str:
    """The Debian release whose g++ compiles: the base, or the first one that has the standard.

    Raises:
        UsageError: the toolkit takes no g++ of a known release that has it.
    """
    able, releases = cxx_bounds(standard), _releases()
    if not able or base not in releases:
        return base  # a base that is not known has what its recipes give it
    taken = toolkit.host_compiler.model_dump(exclude_none=True)
    newer = list(releases)[list(releases).index(base) :]
    found = {name: HostCompiler(Path("g++"), "gcc", releases[name]["gcc"]) for name in newer}
    for suite, compiler in found.items():
        if is_within(compiler, able) and (not taken or is_within(compiler, taken)):
            return suite
    known = ", ".join(f"{compiler.version} of {suite}" for suite, compiler in found.items())
    raise UsageError(
        f"toolkit {toolkit.name}: expected a g++ with C++{standard} for torch's headers (gcc "
        f"{able['gcc']}) that it takes (gcc {taken.get('gcc')}), found {known}; leave this torch "
        "out for it, or name recipes of your own in containers.recipes"
    )
