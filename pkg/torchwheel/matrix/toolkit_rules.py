"""Rules of toolkits: a name that tells the release, a compiler for every arch."""

from collections.abc import Iterator, Sequence

from torchwheel.arch import model as arch
from torchwheel.arch import table
from torchwheel.arch.backend import BRANDS
from torchwheel.matrix.finding import Finding
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.resolve import aten_releases
from torchwheel.matrix.toolkit_model import ToolkitSection
from torchwheel.shown import Path, listed, quoted, version_key


def abis_declared(matrix: Matrix) -> Iterator[Finding]:
    """A toolkit builds only flavours that `abis:` declares, and aten only for listed torches."""
    for name, toolkit in matrix.toolkits.items():
        for i, abi in enumerate(toolkit.abis):
            here: Path = ("toolkits", name, "abis", i)
            if getattr(matrix.abis, abi) is None:
                yield here, f'"{abi}" is not declared under abis'
            elif abi == "aten" and not aten_releases(matrix, name):
                yield here, f"no release under torch lists {name}; add it there or drop aten"


def toolkits_possible(matrix: Matrix) -> Iterator[Finding]:
    """The name tells the release, and the release has a compiler for every arch."""
    for name, toolkit in matrix.toolkits.items():
        here: Path = ("toolkits", name)
        usual = _usual_name(toolkit)
        if not name.startswith(usual):
            yield (
                (*here, "version"),
                f'{_release(toolkit)} does not go with the name "{name}"; expected "{usual}"',
            )
        known = table.archs(toolkit.backend)
        if toolkit.version not in known:
            yield (
                (*here, "version"),
                f"{_release(toolkit)} is not known; known: {listed(known)} "
                "(a newer torchwheel may know it)",
            )
            continue
        if toolkit.source == "pypi" and (
            toolkit.backend != "cuda" or version_key(toolkit.version) < (13,)
        ):
            yield (
                (*here, "source"),
                f"PyPI has no compiler of {_release(toolkit)}, only of CUDA 13 and later; "
                'expected "system", "distribution" or "vendor"',
            )
        yield from _packages(here, toolkit, matrix)
        yield from _archs(here, toolkit, known[toolkit.version])


def _packages(here: Path, toolkit: ToolkitSection, matrix: Matrix) -> Iterator[Finding]:
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


def _archs(here: Path, toolkit: ToolkitSection, known: Sequence[str]) -> Iterator[Finding]:
    for i, text in enumerate(toolkit.archs):
        wanted = arch.parse(text)
        if arch.backend(wanted) != toolkit.backend:
            backend = BRANDS[toolkit.backend]
            example = "9.0" if toolkit.backend == "cuda" else "gfx90a"
            yield (
                (*here, "archs", i),
                f'"{text}" is not an arch of {backend}; expected e.g. "{example}"',
            )
        elif wanted.name not in known:
            yield (
                (*here, "archs", i),
                f"{_release(toolkit)} cannot compile {quoted(text)}; it can: {listed(known)}",
            )


def _usual_name(toolkit: ToolkitSection) -> str:
    if toolkit.backend == "cuda":
        return f"cu{toolkit.version.replace('.', '')}"
    return f"rocm{toolkit.version}"


def _release(toolkit: ToolkitSection) -> str:
    return f"{BRANDS[toolkit.backend]} {toolkit.version}"
