"""Rules of torch releases: they exist, and each was published for what it is paired with."""

from collections.abc import Iterator

from torchwheel.arch.backend import BRANDS
from torchwheel.matrix import facts
from torchwheel.matrix.finding import Finding
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.toolkit_model import ToolkitSection
from torchwheel.shown import Path, listed, nearest, quoted, version_key


def torches_known(matrix: Matrix) -> Iterator[Finding]:
    """A floor is a torch release."""
    for abi in ("stable", "pure"):
        floor = getattr(matrix.abis, abi)
        if floor and floor.torch not in facts.torch_releases():
            yield ("abis", abi, "torch"), _unknown_torch(floor.torch)


def pairs_possible(matrix: Matrix) -> Iterator[Finding]:
    """Each torch release was published for the toolkits and Pythons it lists."""
    for minor, release in matrix.torch.items():
        here: Path = ("torch", minor)
        known = facts.torch_releases().get(minor)
        if known is None:
            yield here, _unknown_torch(minor)
            continue
        for i, python in enumerate(release.pythons):
            if python not in known.pythons:
                yield (
                    (*here, "pythons", i),
                    f"torch {minor} has no build for Python {python}; "
                    f"it has {listed(known.pythons)}",
                )
        for i, name in enumerate(release.toolkits):
            toolkit = matrix.toolkits.get(name)
            if toolkit is None:
                yield (
                    (*here, "toolkits", i),
                    f"no toolkit {quoted(name)}; {nearest(name, matrix.toolkits)}",
                )
            elif text := _impossible(minor, known, name, toolkit):
                yield (*here, "toolkits", i), text
            elif not _serves(matrix, minor, toolkit):
                yield (
                    (*here, "toolkits", i),
                    f"{name} has nothing for torch {minor}: its abis are "
                    f"{listed(toolkit.abis)}, and stable begins with a later torch",
                )


def _unknown_torch(minor: str) -> str:
    known = listed(facts.torch_releases())
    return f"torch {minor} is not known; known: {known} (a newer torchwheel may know it)"


def _impossible(
    minor: str, known: facts.TorchFacts, name: str, toolkit: ToolkitSection
) -> str | None:
    majors = known.majors(toolkit.backend)
    major = version_key(toolkit.version)[0]
    if major in majors:
        return None
    backend = BRANDS[toolkit.backend]
    has = f"it has {backend} {listed(map(str, majors))}" if majors else "it has none of it"
    return f"torch {minor} has no build for {backend} {major} ({name}); {has}"


def _serves(matrix: Matrix, minor: str, toolkit: ToolkitSection) -> bool:
    floor = matrix.abis.stable
    if "aten" in toolkit.abis or floor is None or floor.torch not in facts.torch_releases():
        return True  # or else another rule speaks of it
    return version_key(minor) >= version_key(floor.torch)
