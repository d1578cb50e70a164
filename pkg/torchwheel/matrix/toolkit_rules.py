"""Rules of toolkits and torch releases: they exist, and fit together."""

from collections.abc import Iterator, Sequence

from torchwheel.arch.model import BRANDS, backend_of
from torchwheel.arch.toolkit_releases import archs_by_release
from torchwheel.matrix import torch_releases
from torchwheel.matrix.document import MatrixFinding
from torchwheel.matrix.sections import Matrix, ToolkitSection
from torchwheel.matrix.variants import aten_releases
from torchwheel.text import KeyPath, join_names, nearest, quote
from torchwheel.versions import version_numbers


def abis_declared(matrix: Matrix) -> Iterator[MatrixFinding]:
    """A toolkit builds only flavours that `abis:` declares, and aten only for listed torches."""
    for name, toolkit in matrix.toolkits.items():
        for i, abi in enumerate(toolkit.abis):
            here: KeyPath = ("toolkits", name, "abis", i)
            if getattr(matrix.abis, abi) is None:
                yield here, f'"{abi}" is not declared under abis'
            elif abi == "aten" and not aten_releases(matrix, name):
                yield here, f"no release under torch lists {name}; add it there or drop aten"


def toolkits_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """The name tells the release, and the release has a compiler for every arch."""
    for name, toolkit in matrix.toolkits.items():
        here: KeyPath = ("toolkits", name)
        usual = toolkit.release.name
        if not name.startswith(usual):
            yield (
                (*here, "version"),
                f'{toolkit.release} does not go with the name "{name}"; expected "{usual}"',
            )
        known = archs_by_release(toolkit.backend)
        if toolkit.version not in known:
            yield (
                (*here, "version"),
                f"{toolkit.release} is not known; known: {join_names(known)} "
                "(a newer torchwheel may know it)",
            )
            continue
        if toolkit.source == "pypi" and (
            toolkit.backend != "cuda" or version_numbers(toolkit.version) < (13,)
        ):
            yield (
                (*here, "source"),
                f"PyPI has no compiler of {toolkit.release}, only of CUDA 13 and later; "
                'expected "system", "distribution" or "vendor"',
            )
        yield from _packages(here, toolkit, matrix)
        yield from _archs(here, toolkit, known[toolkit.version])


def _packages(here: KeyPath, toolkit: ToolkitSection, matrix: Matrix) -> Iterator[MatrixFinding]:
    """Packages are what an image is made of, so they go with a source in a container."""
    contained = toolkit.source in ("distribution", "vendor")
    if contained and toolkit.packages is None:
        yield (*here, "packages"), f'missing; source "{toolkit.source}" installs packages'
    if contained and matrix.containers is None:
        yield (
            (*here, "source"),
            f'"{toolkit.source}" is built in a container, but there is no section "containers"',
        )
    if toolkit.packages and not contained:
        yield (
            (*here, "packages"),
            f'not used by source "{toolkit.source}"; expected "distribution" or "vendor"',
        )


def _archs(here: KeyPath, toolkit: ToolkitSection, known: Sequence[str]) -> Iterator[MatrixFinding]:
    for i, arch in enumerate(toolkit.archs):
        if backend_of(arch) != toolkit.backend:
            backend = BRANDS[toolkit.backend]
            example = "9.0" if toolkit.backend == "cuda" else "gfx90a"
            yield (
                (*here, "archs", i),
                f'"{arch}" is not an arch of {backend}; expected e.g. "{example}"',
            )
        elif arch.name not in known:
            yield (
                (*here, "archs", i),
                f'{toolkit.release} cannot compile "{arch}"; it can: {join_names(known)}',
            )


def torches_known(matrix: Matrix) -> Iterator[MatrixFinding]:
    """A floor is a torch release."""
    for abi in ("stable", "pure"):
        floor = getattr(matrix.abis, abi)
        if floor and floor.torch not in torch_releases.torch_releases():
            yield ("abis", abi, "torch"), _unknown_torch(floor.torch)


def pairs_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Each torch release was published for the toolkits and Pythons it lists."""
    for minor, release in matrix.torch.items():
        here: KeyPath = ("torch", minor)
        known = torch_releases.torch_releases().get(minor)
        if known is None:
            yield here, _unknown_torch(minor)
            continue
        for i, python in enumerate(release.pythons):
            if python not in known.pythons:
                yield (
                    (*here, "pythons", i),
                    f"torch {minor} has no build for Python {python}; "
                    f"it has {join_names(known.pythons)}",
                )
        for i, name in enumerate(release.toolkits):
            toolkit = matrix.toolkits.get(name)
            if toolkit is None:
                yield (
                    (*here, "toolkits", i),
                    f"no toolkit {quote(name)}; {nearest(name, matrix.toolkits)}",
                )
            elif text := _impossible(minor, known, name, toolkit):
                yield (*here, "toolkits", i), text
            elif not _serves(matrix, minor, toolkit):
                yield (
                    (*here, "toolkits", i),
                    f"{name} has nothing for torch {minor}: its abis are "
                    f"{join_names(toolkit.abis)}, and stable begins with a later torch",
                )


def _unknown_torch(minor: str) -> str:
    known = join_names(torch_releases.torch_releases())
    return f"torch {minor} is not known; known: {known} (a newer torchwheel may know it)"


def _impossible(
    minor: str, known: torch_releases.TorchFacts, name: str, toolkit: ToolkitSection
) -> str | None:
    majors = known.majors(toolkit.backend)
    major = version_numbers(toolkit.version)[0]
    if major in majors:
        return None
    backend = BRANDS[toolkit.backend]
    has = f"it has {backend} {join_names(map(str, majors))}" if majors else "it has none of it"
    return f"torch {minor} has no build for {backend} {major} ({name}); {has}"


def _serves(matrix: Matrix, minor: str, toolkit: ToolkitSection) -> bool:
    floor = matrix.abis.stable
    if (
        "aten" in toolkit.abis
        or floor is None
        or floor.torch not in torch_releases.torch_releases()
    ):
        return True  # or else another rule speaks of it
    return version_numbers(minor) >= version_numbers(floor.torch)
