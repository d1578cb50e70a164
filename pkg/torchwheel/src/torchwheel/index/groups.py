"""Which index groups there are, which wheels each offers, and which of them by version alone.

A group must never make pip replace an installed torch. pip takes the highest version, and then a
torch for it: `1.0.0+cu130`, which needs torch>=2.11, before `1.0.0`. So where a universal wheel
does the same work, a group offers a wheel that does not accept every torch only to those who name
its version. PEP 592 calls such a file yanked.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from packaging.specifiers import SpecifierSet

from torchwheel.index.needs import ALL
from torchwheel_runtime.arch.model import Backend, runtime_major
from torchwheel_runtime.arch.releases import ToolkitRelease, TorchFacts, torch_releases
from torchwheel_runtime.claims import Abi, Claims
from torchwheel_runtime.errors import TorchwheelError

CPU = "cpu"
"""The group for a torch without GPU code."""


@dataclasses.dataclass(frozen=True)
class TorchBuild:
    """A torch minor that was published for a release of CUDA or ROCm."""

    torch: str
    toolkit: ToolkitRelease

    @property
    def group(self) -> str:
        """The name of its group: "cu130/torch2.11"."""
        return f"{self.toolkit.name}/torch{self.torch}"


def torch_builds(releases: Mapping[str, TorchFacts] | None = None) -> tuple[TorchBuild, ...]:
    """Every published pairing of torch with CUDA or ROCm (default: all that are known)."""
    return tuple(
        TorchBuild(minor, ToolkitRelease(backend, version))
        for minor, facts in (torch_releases() if releases is None else releases).items()
        for backend, versions in facts.toolkits.items()
        for version in versions
    )


@functools.cache
def _known_builds() -> Mapping[str, TorchBuild]:
    """All known builds of torch, by their groups."""
    return {build.group: build for build in torch_builds()}


def group_title(name: str) -> str:
    """What a group is for: "torch 2.11 for CUDA 13.0"; empty if the name is of no known kind."""
    toolkits = {build.toolkit.name: f"any torch for {build.toolkit}" for build in torch_builds()}
    if build := _known_builds().get(name):
        return f"torch {build.torch} for {build.toolkit}"
    return {CPU: "torch for the CPU", ALL: "every wheel", **toolkits}.get(name, "")


class WheelKind(NamedTuple):
    """What of a wheel's claims decides its groups. Thousands of wheels are of few kinds."""

    variant: str
    abi: Abi
    torch_release: str
    toolkit: str | None
    toolkit_version: str | None
    ranges: tuple[str, ...]
    """The range of torch of each library with operators."""
    kernels: tuple[tuple[Backend | None, str], ...]
    """Backend and toolkit release of each library with kernels."""

    @property
    def accepts_every_torch(self) -> bool:
        """Whether it is for any torch, so that pip replaces none for it."""
        return self.abi in ("pure", "universal")


@functools.lru_cache(maxsize=10_000)
def kind_of(claims: Claims) -> WheelKind:
    """The kind of a wheel, by its claims."""
    ranges, kernels = [claims.torch_range], [(claims.backend, claims.toolkit_version or "")]
    if claims.parts:
        ranges = [part.needs.torch_range for part in claims.parts if part.kind == "front_end"]
        libraries = (part for part in claims.parts if part.kind == "kernels")
        kernels = [(part.backend, part.toolkit_version or "") for part in libraries]
    return WheelKind(
        claims.variant,
        claims.abi,
        claims.torch_release,
        claims.toolkit,
        claims.toolkit_version,
        tuple(ranges),
        tuple(kernels),
    )


@functools.lru_cache(maxsize=100_000)
def serves(kind: WheelKind, build: TorchBuild) -> bool:
    """Whether a wheel has a front end for this torch and kernels of its toolkit's major release."""
    return any(accepts(text, build.torch) for text in kind.ranges) and any(
        backend == build.toolkit.backend
        and runtime_major(backend, version) == runtime_major(backend, build.toolkit.version)
        for backend, version in kind.kernels
    )


def groups_of(
    wheels: Sequence[Claims], builds: Sequence[TorchBuild] | None = None
) -> tuple[tuple[str, ...], ...]:
    """The groups of each wheel of one release; see `groups_of_releases`."""
    return groups_of_releases([wheels], builds)[0]


def groups_of_releases(
    releases: Sequence[Sequence[Claims]], builds: Sequence[TorchBuild] | None = None
) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The groups of each wheel of each release, e.g. ("cu130", "cu130/torch2.11").

    There is a group for each published torch that a wheel serves, one for each toolkit, and `cpu`.
    The universal and the pure wheels are in all of them: pip takes the one that fits the machine.
    Another wheel is in the groups of the toolkit that it was built with; the group of a toolkit
    without a wheel of its own in that release offers those of the same major release.

    Args:
        releases: the claims of the wheels of each release.
        builds: the published builds of torch (default: all that are known).
    """
    known = tuple(_known_builds().values()) if builds is None else tuple(builds)
    kinds = [tuple(kind_of(claims) for claims in wheels) for wheels in releases]
    own = [_groups_in_release(of_release, known) for of_release in kinds]
    every = {CPU, *(name for of_each in own for names in of_each for name in names)}
    for kind in {kind for of_release in kinds for kind in of_release}:
        served = [build for build in known if serves(kind, build)]
        every |= {name for build in served for name in (build.toolkit.name, build.group)}
    in_all = tuple(sorted(every))
    return tuple(
        tuple(
            in_all if kind.accepts_every_torch else names
            for kind, names in zip(of_release, of_each, strict=True)
        )
        for of_release, of_each in zip(kinds, own, strict=True)
    )


def is_of_torch(group: str) -> bool:
    """Whether who uses a group has a certain torch, as in "cu130/torch2.11"."""
    return group in _known_builds()


def by_version_alone(group: str, kind: WheelKind, others: frozenset[WheelKind]) -> bool:
    """Whether a group offers a wheel only to those who name its version.

    Args:
        group: the group's name.
        kind: the kind of the wheel.
        others: the kinds of the other wheels of the same project, version and machine.
    """
    if kind.accepts_every_torch:
        return False
    build = _known_builds().get(group)
    if build is None:  # a toolkit's group: whoever uses it may have any torch
        return True
    return any(other.abi == "universal" and serves(other, build) for other in others)


@functools.lru_cache(maxsize=10_000)
def accepts(torch_range: str, minor: str) -> bool:
    """Whether a range of torch, e.g. ">=2.11", has a minor."""
    return SpecifierSet(torch_range).contains(minor, prereleases=True)


# Most releases have wheels of the same kinds.
@functools.lru_cache(maxsize=1000)
def _groups_in_release(
    kinds: tuple[WheelKind, ...], known: tuple[TorchBuild, ...]
) -> tuple[tuple[str, ...], ...]:
    """The groups of each wheel that does not accept every torch; none for the others."""
    small = [kind for kind in kinds if not kind.accepts_every_torch]
    exact = {
        build: {kind.toolkit_version for kind in small if serves(kind, build)} for build in known
    }

    def offers(kind: WheelKind, build: TorchBuild) -> bool:
        """Whether the group of a torch offers the wheel: no other fits its toolkit better."""
        wanted = build.toolkit.version
        fits = kind.toolkit_version == wanted or wanted not in exact[build]
        return fits and serves(kind, build)

    return tuple(
        ()
        if kind.accepts_every_torch
        else tuple(sorted(_own_groups(kind, [build for build in known if offers(kind, build)])))
        for kind in kinds
    )


def _own_groups(kind: WheelKind, builds: Iterable[TorchBuild]) -> set[str]:
    if kind.abi == "aten" and kind.toolkit is None:
        return {CPU, f"{CPU}/torch{kind.torch_release}"}
    if kind.toolkit is None:
        raise TorchwheelError(f"variant {kind.variant}: an {kind.abi} wheel needs a local version")
    found = {kind.toolkit}
    for build in builds:
        found |= {build.toolkit.name, build.group}
    return found
