"""Rules about toolkits and torch releases: they exist and fit together."""

from collections.abc import Iterator, Sequence

from torchwheel.matrix.document import MatrixFinding
from torchwheel.matrix.sections import Matrix, ToolkitSection
from torchwheel.matrix.variants import aten_releases
from torchwheel_runtime.arch.model import BRANDS, backend_of
from torchwheel_runtime.arch.releases import TorchFacts, archs_by_release, torch_releases
from torchwheel_runtime.text import KeyPath, join_names, nearest, quote
from torchwheel_runtime.versions import version_numbers


def abis_declared(matrix: Matrix) -> Iterator[MatrixFinding]:
    """A toolkit is used; its flavours are declared in `abis:`; aten has a torch to build for."""
    used = matrix.abis.universal.toolkits if matrix.abis.universal else ()
    for name, toolkit in matrix.toolkits.items():
        if not toolkit.abis and name not in used:
            yield (
                ("toolkits", name, "abis"),
                f"is empty, and abis.universal does not use {name}; expected e.g. [stable]",
            )
        for i, abi in enumerate(toolkit.abis):
            path: KeyPath = ("toolkits", name, "abis", i)
            if getattr(matrix.abis, abi) is None:
                yield path, f'"{abi}" is not declared under abis'
            elif abi != "stable" and not aten_releases(matrix, name):
                yield path, f"no release under torch lists {name}; add it there or drop {abi}"


def toolkits_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """A toolkit's name fits its release, and the release can compile every arch."""
    for name, toolkit in matrix.toolkits.items():
        path: KeyPath = ("toolkits", name)
        usual = toolkit.release.name
        if not name.startswith(usual):
            yield (
                (*path, "version"),
                f'{toolkit.release} does not go with the name "{name}"; expected "{usual}"',
            )
        known = archs_by_release(toolkit.backend)
        if toolkit.version not in known:
            yield (
                (*path, "version"),
                f"{toolkit.release} is not known; known: {join_names(known)} "
                "(a newer torchwheel may know it)",
            )
            continue
        if toolkit.source == "pypi" and (
            toolkit.backend != "cuda" or version_numbers(toolkit.version) < (13,)
        ):
            yield (
                (*path, "source"),
                f"PyPI has no compiler of {toolkit.release}, only of CUDA 13 and later; "
                'expected "system", "distribution" or "vendor"',
            )
        yield from _packages(path, toolkit, matrix)
        yield from _archs(path, toolkit, known[toolkit.version])


def _packages(path: KeyPath, toolkit: ToolkitSection, matrix: Matrix) -> Iterator[MatrixFinding]:
    """Exactly the sources that are container images have packages."""
    contained = toolkit.source in ("distribution", "vendor")
    if contained and toolkit.packages is None:
        yield (*path, "packages"), f'missing; source "{toolkit.source}" installs packages'
    if contained and matrix.containers is None:
        yield (
            (*path, "source"),
            f'"{toolkit.source}" is built in a container, but there is no section "containers"',
        )
    if toolkit.packages and not contained:
        yield (
            (*path, "packages"),
            f'not used by source "{toolkit.source}"; expected "distribution" or "vendor"',
        )


def _archs(path: KeyPath, toolkit: ToolkitSection, known: Sequence[str]) -> Iterator[MatrixFinding]:
    for i, arch in enumerate(toolkit.archs):
        if backend_of(arch) != toolkit.backend:
            backend = BRANDS[toolkit.backend]
            example = "9.0" if toolkit.backend == "cuda" else "gfx90a"
            yield (
                (*path, "archs", i),
                f'"{arch}" is not an arch of {backend}; expected e.g. "{example}"',
            )
        elif arch.name not in known:
            yield (
                (*path, "archs", i),
                f'{toolkit.release} cannot compile "{arch}"; it can: {join_names(known)}',
            )


def torches_known(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Every floor is a known torch release."""
    for abi in ("stable", "pure"):
        floor = getattr(matrix.abis, abi)
        if floor and floor.torch not in torch_releases():
            yield ("abis", abi, "torch"), _unknown_torch(floor.torch)


def pairs_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Each torch release was published for the toolkits and Pythons it lists."""
    for minor, release in matrix.torch.items():
        path: KeyPath = ("torch", minor)
        known = torch_releases().get(minor)
        if known is None:
            yield path, _unknown_torch(minor)
            continue
        for i, python in enumerate(release.pythons):
            if python not in known.pythons:
                yield (
                    (*path, "pythons", i),
                    f"torch {minor} has no build for Python {python}; "
                    f"it has {join_names(known.pythons)}",
                )
        for i, name in enumerate(release.toolkits):
            toolkit = matrix.toolkits.get(name)
            if toolkit is None:
                yield (
                    (*path, "toolkits", i),
                    f"no toolkit {quote(name)}; {nearest(name, matrix.toolkits)}",
                )
            elif text := _torch_lacks(minor, known, name, toolkit):
                yield (*path, "toolkits", i), text
            elif not _serves(matrix, minor, toolkit):
                yield (
                    (*path, "toolkits", i),
                    f"{name} has nothing for torch {minor}: its abis are "
                    f"{join_names(toolkit.abis)}, and stable begins with a later torch"
                    if toolkit.abis
                    else f"{name} has no wheels of its own: its abis are empty",
                )


def universal_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """The universal wheel has toolkits of the matrix, and front ends for known torch releases."""
    universal, stable = matrix.abis.universal, matrix.abis.stable
    if universal is None:
        return
    path: KeyPath = ("abis", "universal")
    if stable is None:
        yield path, 'needs the stable flavour; expected e.g. stable: {torch: "2.11"} under abis'
        return
    for i, name in enumerate(universal.toolkits):
        if name not in matrix.toolkits:
            yield (
                (*path, "toolkits", i),
                f"no toolkit {quote(name)}; {nearest(name, matrix.toolkits)}",
            )
    for i, minor in enumerate(universal.torch):
        if minor not in torch_releases():
            yield (*path, "torch", i), _unknown_torch(minor)
        elif version_numbers(minor) >= version_numbers(stable.torch):
            yield (
                (*path, "torch", i),
                f"torch {minor} is served by the stable front end (from {stable.torch} on)",
            )


def _unknown_torch(minor: str) -> str:
    known = join_names(torch_releases())
    return f"torch {minor} is not known; known: {known} (a newer torchwheel may know it)"


def _torch_lacks(minor: str, known: TorchFacts, name: str, toolkit: ToolkitSection) -> str | None:
    majors = known.majors(toolkit.backend)
    major = version_numbers(toolkit.version)[0]
    if major in majors:
        return None
    backend = BRANDS[toolkit.backend]
    has = f"it has {backend} {join_names(map(str, majors))}" if majors else "it has none of it"
    return f"torch {minor} has no build for {backend} {major} ({name}); {has}"


def _serves(matrix: Matrix, minor: str, toolkit: ToolkitSection) -> bool:
    floor = matrix.abis.stable
    if not toolkit.abis:
        return False
    if (
        {"aten", "ordinary"} & set(toolkit.abis)
        or floor is None
        or floor.torch not in torch_releases()
    ):
        return True  # another rule reports the floor
    return version_numbers(minor) >= version_numbers(floor.torch)
