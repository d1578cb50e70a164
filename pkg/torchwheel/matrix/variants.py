"""From the matrix to its variants, each with a stable id; and the selection of some."""

import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Sequence

from torchwheel.claims import Abi, local_version, torch_range
from torchwheel.errors import UsageError
from torchwheel.matrix.sections import Exclusion, Matrix, Platform, Toolkit, WheelPlatform
from torchwheel.text import join_names, nearest, quote
from torchwheel.versions import version_numbers


@dataclasses.dataclass(frozen=True)
class Variant:
    """One build: a toolkit, an ABI flavour, a torch range, a Python tag and a platform."""

    id: str
    """E.g. "cu130-stable", "cu124-torch2.6-cp312", "pure"."""
    abi: Abi
    toolkit: Toolkit | None
    """None for the pure-Python wheel."""
    torch_release: str
    """The oldest torch minor it is for (stable, pure) or the only one (aten), e.g. "2.11". A
    native wheel is built with the headers of this release."""
    python_tag: str
    """"py3" or "cp312"."""
    platform: WheelPlatform
    """"any" for pure."""

    @property
    def torch_range(self) -> str:
        """The range of Requires-Dist: ">=2.11" (stable, pure) or "==2.6.*" (aten)."""
        return torch_range(self.abi, self.torch_release)

    @property
    def local(self) -> str | None:
        """Local version of the wheel: "cu130", "cu124torch2.6"; None for pure."""
        toolkit = self.toolkit.name if self.toolkit else None
        return local_version(self.abi, toolkit, self.torch_release)

    @property
    def python(self) -> str | None:
        """The one Python it is for, e.g. "3.12"; None for any."""
        tag = self.python_tag
        return f"{tag[2]}.{tag[3:]}" if tag.startswith("cp") else None


def python_tag(python: str) -> str:
    """The tag of a CPython: "cp312" for "3.12"."""
    return f"cp{python.replace('.', '')}"


def all_variants(matrix: Matrix) -> tuple[Variant, ...]:
    """Every variant the matrix declares, exclusions not yet taken out."""
    return tuple(_native(matrix)) + tuple(_pure(matrix))


def resolve(matrix: Matrix) -> tuple[Variant, ...]:
    """The variants that are built: all that are declared, less the exclusions."""
    variants = tuple(v for v in all_variants(matrix) if exclusion(matrix, v.id) is None)
    seen: set[str] = set()
    for variant in variants:
        if variant.id in seen:
            raise UsageError(f"duplicate variant {variant.id}: the matrix declares it twice")
        seen.add(variant.id)
    return variants


def exclusion(matrix: Matrix, variant_id: str) -> Exclusion | None:
    """The first exclusion that takes a variant out, if any does."""
    for entry in matrix.exclude:
        if fnmatch.fnmatchcase(variant_id, entry.variant):
            return entry
    return None


def aten_releases(matrix: Matrix, toolkit: str) -> tuple[str, ...]:
    """Minors of torch for which the aten flavour is built with a toolkit."""
    newest = matrix.abis.aten.through if matrix.abis.aten else None
    return tuple(
        minor
        for minor, release in matrix.torch.items()
        if toolkit in release.toolkits
        and (newest is None or version_numbers(minor) <= version_numbers(newest))
    )


def _native(matrix: Matrix) -> Iterator[Variant]:
    for name in matrix.toolkits:
        toolkit = matrix.toolkit(name)
        for abi in toolkit.abis:
            if abi == "stable" and matrix.abis.stable:
                for platform in matrix.platforms:
                    yield _stable(matrix, toolkit, matrix.abis.stable.torch, platform)
            if abi == "aten" and matrix.abis.aten:
                for minor in aten_releases(matrix, name):
                    for python in matrix.torch[minor].pythons:
                        for platform in matrix.platforms:
                            yield _aten(matrix, toolkit, minor, python, platform)


def _stable(matrix: Matrix, toolkit: Toolkit, floor: str, platform: Platform) -> Variant:
    return Variant(
        id=f"{toolkit.name}-stable{_suffix(matrix, platform)}",
        abi="stable",
        toolkit=toolkit,
        torch_release=floor,
        python_tag="py3",
        platform=platform,
    )


def _aten(matrix: Matrix, toolkit: Toolkit, minor: str, python: str, platform: Platform) -> Variant:
    tag = python_tag(python)
    return Variant(
        id=f"{toolkit.name}-torch{minor}-{tag}{_suffix(matrix, platform)}",
        abi="aten",
        toolkit=toolkit,
        torch_release=minor,
        python_tag=tag,
        platform=platform,
    )


def _pure(matrix: Matrix) -> Iterator[Variant]:
    if matrix.abis.pure:
        yield Variant(
            id="pure",
            abi="pure",
            toolkit=None,
            torch_release=matrix.abis.pure.torch,
            python_tag="py3",
            platform="any",
        )


def _suffix(matrix: Matrix, platform: Platform) -> str:
    """The first platform listed is the usual one: ids for it stay short."""
    return "" if platform == matrix.platforms[0] else f"-{platform}"


def select(matrix: Matrix, names: Sequence[str]) -> tuple[Variant, ...]:
    """Variants that the names mean, in the order of the matrix, each once.

    Args:
        matrix: the matrix.
        names: names of selections, variant ids, or patterns of ids such as "*-stable".

    Raises:
        UsageError: no name is given, or one means nothing; the line lists the nearest.
    """
    variants = resolve(matrix)
    wanted: set[str] = set()
    for name in names:
        patterns = matrix.selections.get(name, (name,))
        found = {variant.id for variant in variants if _matches(variant.id, patterns)}
        if not found:
            raise UsageError(_nothing(matrix, variants, name))
        wanted |= found
    if not wanted:
        raise UsageError(
            f"nothing is selected; expected a selection ({join_names(matrix.selections)}) "
            "or variant ids"
        )
    return tuple(variant for variant in variants if variant.id in wanted)


def _matches(variant_id: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(variant_id, pattern) for pattern in patterns)


def _nothing(matrix: Matrix, variants: Sequence[Variant], name: str) -> str:
    if excluded := exclusion(matrix, name):
        return f"variant {quote(name)} is excluded from the matrix: {excluded.reason}"
    known = [*matrix.selections, *(variant.id for variant in variants)]
    return f"no variant or selection {quote(name)}; {nearest(name, known)}"
