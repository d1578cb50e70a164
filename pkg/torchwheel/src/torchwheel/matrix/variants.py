"""The variants of a matrix, each with a stable id; their selection, and the CI runners of each."""

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence

from torchwheel.matrix.sections import (
    Exclusion,
    Machines,
    Matrix,
    Platform,
    Toolkit,
    ToolkitAbi,
    WheelPlatform,
)
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.claims import Abi, PartKind, local_version, torch_range
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import join_names, nearest, quote
from torchwheel_runtime.versions import version_numbers


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
    """"py3", "cp312", or "abi3" for every CPython from the one that the wheel names."""
    platform: WheelPlatform
    """"any" for pure."""
    part: PartKind | None = None
    """What it is in a universal wheel; None for a wheel of its own."""
    parts: "tuple[Variant, ...]" = ()
    """The variants that a universal wheel is made of."""
    ordinary: bool = False
    """Whether the project's own build makes it, against the torch `built_with`."""
    built_with: str = ""
    """The torch minor that an ordinary project is built with: its release, or a later one where
    it keeps to the stable ABI. Empty for others."""
    label: str | None = None
    """Of a labelled wheel: the universal wheel with some of its kernels, or the pure wheel."""

    @property
    def native(self) -> bool:
        """Whether its wheel has machine code."""
        return self.toolkit is not None or bool(self.parts)

    @property
    def builds(self) -> "tuple[Variant, ...]":
        """What is compiled for its wheel: its parts, or itself if it has a toolkit."""
        return self.parts or ((self,) if self.toolkit else ())

    @property
    def backends(self) -> frozenset[Backend]:
        """Whose GPUs its wheel has kernels for."""
        kernels = (part.toolkit for part in self.parts if part.part == "kernels")
        return frozenset(one.backend for one in (self.toolkit, *kernels) if one)

    @property
    def unlabelled_id(self) -> str:
        """The id of the variant that has all parts of this one, and no label: "universal"."""
        return self.id.removesuffix(f"-{self.label}") if self.label else self.id

    @property
    def library(self) -> str:
        """Name of its library: of a part "cu124", "stable", "torch2.6" or "dlpack"; else its id."""
        if self.part == "kernels" and self.toolkit:
            return self.toolkit.name
        if self.part == "entry_points":
            return "dlpack"
        if self.part == "front_end":
            return "stable" if self.abi == "stable" else f"torch{self.torch_release}"
        return self.id

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
        """The Python it is for, e.g. "3.12"; None for any."""
        tag = self.python_tag
        return f"{tag[2]}.{tag[3:]}" if tag.startswith("cp") else None


def python_tag(python: str) -> str:
    """The tag of a CPython: "cp312" for "3.12"."""
    return f"cp{python.replace('.', '')}"


def all_variants(matrix: Matrix) -> tuple[Variant, ...]:
    """Every variant that the matrix declares, including the excluded ones."""
    return (*_native(matrix), *_universal(matrix), *_pure(matrix), *_labelled(matrix))


def resolve(matrix: Matrix) -> tuple[Variant, ...]:
    """The variants that are built: all that are declared but the excluded ones."""
    return tuple(v for v in all_variants(matrix) if exclusion(matrix, v.id) is None)


def exclusion(matrix: Matrix, variant_id: str) -> Exclusion | None:
    """The first exclusion that matches a variant."""
    for entry in matrix.exclude:
        if fnmatch.fnmatchcase(variant_id, entry.variant):
            return entry
    return None


def aten_releases(matrix: Matrix, toolkit: str) -> tuple[str, ...]:
    """The torch minors for which a toolkit builds the flavour aten, or an ordinary project."""
    flavour = matrix.abis.aten or matrix.abis.ordinary
    newest = flavour.through if flavour else None
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
            floor = _floor(matrix, abi)
            for release, tag in _targets(matrix, name, abi):
                own = f"{name}-stable" if abi == "stable" else f"{name}-torch{release}-{tag}"
                if abi == "ordinary" and floor:
                    own = f"{name}-stable-{tag}"
                for platform in matrix.platforms:
                    yield Variant(
                        id=f"{own}{_suffix(matrix, platform)}",
                        abi="stable" if floor else "aten",
                        toolkit=toolkit,
                        torch_release=floor or release,
                        python_tag=tag,
                        platform=platform,
                        ordinary=abi == "ordinary",
                        built_with=release if abi == "ordinary" else "",
                    )


def _floor(matrix: Matrix, abi: ToolkitAbi) -> str | None:
    """The oldest torch of a flavour's wheels, where one serves all torches from it on."""
    if abi == "stable":
        return matrix.abis.stable.torch if matrix.abis.stable else None
    ordinary = matrix.abis.ordinary
    return ordinary.stable if ordinary and abi == "ordinary" else None


def _targets(matrix: Matrix, toolkit: str, abi: ToolkitAbi) -> Iterator[tuple[str, str]]:
    """The torch and the Python tag of each wheel of a toolkit in one flavour."""
    if abi == "stable":
        if matrix.abis.stable:
            yield matrix.abis.stable.torch, "py3"
        return
    if getattr(matrix.abis, abi) is None:
        return
    serves = matrix.abis.ordinary.python if matrix.abis.ordinary else "each"
    releases = aten_releases(matrix, toolkit)
    for minor in releases[:1] if _floor(matrix, abi) else releases:
        if serves == "each":
            yield from ((minor, python_tag(python)) for python in matrix.torch[minor].pythons)
        else:
            yield minor, "abi3" if serves == "abi3" else "py3"


def _universal(matrix: Matrix) -> Iterator[Variant]:
    universal = matrix.abis.universal
    if universal is None or matrix.abis.stable is None:
        return
    floor = matrix.abis.stable.torch
    oldest = min((*universal.torch, floor), key=version_numbers)
    for platform in matrix.platforms:
        suffix = _suffix(matrix, platform)
        toolkits = [
            toolkit
            for toolkit in map(matrix.toolkit, universal.toolkits)
            if exclusion(matrix, f"{toolkit.name}-stable{suffix}") is None
        ]
        if toolkits:
            # A front end needs no toolkit, but a machine or an image to be compiled on.
            host = next((t for t in toolkits if t.source == "pypi"), toolkits[0])
            parts = [
                *(_part(t, "kernels", t.name, floor, platform, suffix) for t in toolkits),
                _part(host, "front_end", "stable", floor, platform, suffix),
                *(
                    _part(host, "front_end", f"torch{minor}", minor, platform, suffix)
                    for minor in universal.torch
                ),
            ]
            if universal.entry_points:
                parts.append(_part(host, "entry_points", "dlpack", floor, platform, suffix))
            yield Variant(
                id=f"universal{suffix}",
                abi="universal",
                toolkit=None,
                torch_release=oldest,
                python_tag="py3",
                platform=platform,
                parts=tuple(parts),
            )


def _part(
    toolkit: Toolkit, kind: PartKind, name: str, release: str, platform: Platform, suffix: str
) -> Variant:
    return Variant(
        id=f"{name}-{kind.replace('_', '-')}{suffix}",
        abi="aten" if name.startswith("torch") else "stable",
        toolkit=toolkit,
        torch_release=release,
        python_tag="py3",
        platform=platform,
        part=kind,
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


def _labelled(matrix: Matrix) -> Iterator[Variant]:
    """A wheel of each label, where the platform has its kernels, e.g. "universal-cu13"."""
    labels = matrix.abis.universal.labels if matrix.abis.universal else {}
    for base in (*_universal(matrix), *_pure(matrix)):
        for label, toolkits in labels.items():
            parts = tuple(p for p in base.parts if p.part != "kernels" or p.library in toolkits)
            with_kernels = any(part.part == "kernels" for part in parts)
            if with_kernels if toolkits else base.abi == "pure":
                yield dataclasses.replace(base, id=f"{base.id}-{label}", label=label, parts=parts)


def _suffix(matrix: Matrix, platform: Platform) -> str:
    """The suffix of an id; empty for the first platform, the usual one."""
    return "" if platform == matrix.platforms[0] else f"-{platform}"


# What these names stand for where the matrix has no such selection.
_USUAL_SELECTIONS = dict.fromkeys(("default", "release", "all"), ("*",))


def select(matrix: Matrix, names: Sequence[str]) -> tuple[Variant, ...]:
    """The variants that the names stand for, in the order of the matrix, each once.

    Args:
        matrix: the matrix.
        names: names of selections, variant ids, or patterns of ids such as "*-stable".

    Raises:
        UsageError: there is no name, or a name matches nothing; the line lists the nearest.
    """
    variants = resolve(matrix)
    ids: set[str] = set()
    for name in names:
        patterns = matrix.selections.get(name) or _USUAL_SELECTIONS.get(name, (name,))
        matches = {
            one.id for one in variants if any(fnmatch.fnmatchcase(one.id, p) for p in patterns)
        }
        if not matches:
            raise UsageError(_no_match(matrix, variants, name))
        ids |= matches
    if not ids:
        raise UsageError(
            f"nothing is selected; expected a selection ({join_names(matrix.selections)}) "
            "or variant ids"
        )
    return tuple(variant for variant in variants if variant.id in ids)


def _no_match(matrix: Matrix, variants: Sequence[Variant], name: str) -> str:
    if excluded := exclusion(matrix, name):
        return f"variant {quote(name)} is excluded from the matrix: {excluded.reason}"
    known = [*matrix.selections, *(variant.id for variant in variants)]
    for start in (f"{name}-", name) if name else ():
        if any(one.startswith(start) for one in known):
            return f"no variant or selection {quote(name)}; did you mean {quote(f'{start}*')}?"
    return f"no variant or selection {quote(name)}; {nearest(name, known)}"


PURE = "any"
"""The platform of wheels without machine code."""


def build_runner(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The labels of the runner that builds `variant`."""
    return _machines_of(matrix, variant).build


def gpu_runner(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The labels of the runner on whose GPU `variant` must run; empty if there is none."""
    machines = matrix.runners.get(variant.platform)
    if machines is None or not variant.native:
        return ()
    return (machines.rocm if variant.backends == {"rocm"} else machines.cuda) or ()


def smoke_runner(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The labels of the runner that tests `variant`: one with its GPU, else one without."""
    machines = _machines_of(matrix, variant)
    return gpu_runner(matrix, variant) or machines.cpu or machines.build


def with_gpu_runners(matrix: Matrix, gpu: str) -> Matrix:
    """The matrix as it is for "yes"; for "no" without its runners that have a GPU.

    A pull request's code must not reach these machines, so its wheels are tested without a GPU.
    """
    if gpu not in {"yes", "no"}:
        raise UsageError(f'--gpu: expected "yes" or "no", found {quote(gpu)}; say one of them')
    if gpu == "yes":
        return matrix
    runners = {
        platform: machines.model_copy(update={"cuda": None, "rocm": None})
        for platform, machines in matrix.runners.items()
    }
    return matrix.model_copy(update={"runners": runners})


def _machines_of(matrix: Matrix, variant: Variant) -> Machines:
    try:
        return matrix.runners[variant.platform]
    except KeyError:
        raise UsageError(
            f'no machine for {variant.id}: the matrix has no section "runners"; '
            f"expected e.g. runners: {{{variant.platform}: {{build: [ubuntu-24.04]}}}}"
        ) from None
