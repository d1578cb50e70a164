"""Which index groups there are, which wheels each offers, and which of them by version alone.

A group must never make pip replace an installed torch. pip takes the highest version, and then a
torch for it: `1.0.0+cu130`, which needs torch>=2.11, before `1.0.0`. So where a universal wheel
does the same work, a group offers a wheel that does not accept every torch only to those who name
its version. PEP 592 calls such a file yanked.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet

from torchwheel.arch.model import Backend
from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError
from torchwheel.matrix.torch_releases import TorchFacts, torch_releases
from torchwheel.versions import major_version

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


def serves(claims: Claims, build: TorchBuild) -> bool:
    """Whether a wheel has a front end for this torch and kernels of its toolkit's major release."""
    if claims.parts:
        ranges = [part.needs.torch_range for part in claims.parts if part.kind == "front_end"]
    else:
        ranges = [claims.torch_range]
    return any(_accepts(text, build.torch) for text in ranges) and any(
        backend == build.toolkit.backend
        and major_version(version) == major_version(build.toolkit.version)
        for backend, version in _kernels(claims)
    )


def groups_of(
    wheels: Sequence[Claims], builds: Sequence[TorchBuild] | None = None
) -> tuple[tuple[str, ...], ...]:
    """The groups of each wheel, e.g. ("cu130", "cu130/torch2.11").

    There is a group for each published torch that a wheel serves, one for each toolkit, and `cpu`.
    The universal and the pure wheels are in all of them: pip takes the one that fits the machine.
    Another wheel is in the groups of the toolkit that it was built with; the group of a toolkit
    without a wheel of its own offers those of the same major release.

    Args:
        wheels: the claims of all wheels of the index.
        builds: the published builds of torch (default: all that are known).
    """
    known = torch_builds() if builds is None else builds
    own = [_own_groups(claims, _offers(claims, wheels, known)) for claims in wheels]
    served = {build for claims in wheels for build in known if serves(claims, build)}
    every = {CPU, *(name for names in own for name in names)}
    every |= {name for build in served for name in (build.toolkit.name, build.group)}
    return tuple(
        tuple(sorted(every if _accepts_every_torch(claims) else names))
        for claims, names in zip(wheels, own, strict=True)
    )


def by_version_alone(group: str, claims: Claims, others: Collection[Claims]) -> bool:
    """Whether a group offers a wheel only to those who name its version.

    Args:
        group: the group's name.
        claims: the claims of the wheel.
        others: the claims of the group's other wheels of the same project, version and machine.
    """
    if _accepts_every_torch(claims):
        return False
    build = next((build for build in torch_builds() if build.group == group), None)
    if build is None:  # a toolkit's group: whoever uses it may have any torch
        return True
    return any(other.abi == "universal" and serves(other, build) for other in others)


def _accepts(torch_range: str, minor: str) -> bool:
    return SpecifierSet(torch_range).contains(minor, prereleases=True)


def _accepts_every_torch(claims: Claims) -> bool:
    return claims.abi in ("pure", "universal")


def _kernels(claims: Claims) -> Iterator[tuple[Backend | None, str]]:
    """Backend and toolkit release of each library with kernels."""
    if claims.backend:
        yield claims.backend, claims.toolkit_version or ""
    for part in claims.parts:
        if part.kind == "kernels":
            yield part.backend, part.toolkit_version or ""


def _offers(
    claims: Claims, wheels: Sequence[Claims], known: Sequence[TorchBuild]
) -> Iterator[TorchBuild]:
    """The builds of torch whose groups offer a wheel that does not accept every torch."""
    for build in known:
        if serves(claims, build):
            exact = {
                other.toolkit_version
                for other in wheels
                if not _accepts_every_torch(other) and serves(other, build)
            }
            wanted = build.toolkit.version
            if claims.toolkit_version == wanted or wanted not in exact:
                yield build


def _own_groups(claims: Claims, builds: Iterator[TorchBuild]) -> set[str]:
    if _accepts_every_torch(claims):
        return set()
    if claims.abi == "aten" and claims.toolkit is None:
        return {CPU, f"{CPU}/torch{claims.torch_release}"}
    if claims.toolkit is None:
        raise TorchwheelError(
            f"variant {claims.variant}: an {claims.abi} wheel needs a local version"
        )
    found = {claims.toolkit}
    for build in builds:
        found |= {build.toolkit.name, build.group}
    return found
