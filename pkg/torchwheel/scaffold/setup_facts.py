"""What a setup.py says, as read without running it."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Literal

from torchwheel.arch.model import CudaArch
from torchwheel.versions import version_numbers

NAME = "setup.py"
# A flag such as `arch=compute_90,code=[sm_90,compute_90]`, `-arch=sm_80` or `--gpu-architecture=…`.
_CODE = re.compile(r"(?<!\w)(code|arch|gpu-architecture|gpu-code)=(?:\[([\w,]+)\]|(\w+))")
_NUMBER = re.compile(r"(sm|compute|lto)_([1-9][0-9]?)([0-9])([af]?)\Z")


@dataclasses.dataclass(frozen=True)
class Unread:
    """A place of the file whose meaning only a run would tell."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"{NAME}:{self.line}: {self.text}"


@dataclasses.dataclass(frozen=True)
class DeclaredExtension:
    """A native extension; its name and sources are None where only a run would tell them.

    `limited_api` says whether its library keeps to Python's limited API.
    """

    kind: str
    line: int
    name: str | None
    sources: tuple[str, ...] | None
    limited_api: bool = False


@dataclasses.dataclass(frozen=True)
class HardCodedArch:
    """An arch in the file's own compiler flags, and the CUDA releases that get it."""

    arch: CudaArch
    since: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def is_for(self, release: str) -> bool:
        """Whether a build with this CUDA release compiles for it."""
        numbers = version_numbers(release)
        return (not self.since or numbers >= self.since) and (
            not self.before or numbers < self.before
        )


@dataclasses.dataclass(frozen=True)
class BuildVariable:
    """An environment variable that the file reads, and the text that turns it on."""

    name: str
    line: int
    on: str

    @property
    def forces(self) -> bool:
        """Whether it makes the build compile, where it would download or skip."""
        words = set(re.split("[_-]", self.name.upper()))
        return "FORCE" in words and bool(words & _COMPILES) and not words & _OTHERWISE


_COMPILES = frozenset({"BUILD", "CUDA", "COMPILE", "GPU"})
_OTHERWISE = frozenset({"ABI", "CPU", "CXX11", "NO", "ONLY", "SKIP"})


@dataclasses.dataclass(frozen=True)
class SetupFacts:
    """What a setup.py says.

    Attributes:
        name: the distribution's; None if only a run tells.
        extensions: in the order of the file.
        archs: in its own compiler flags.
        own_archs: whether the file sets TORCH_CUDA_ARCH_LIST itself.
        variables: that it reads.
        limited_api: `py_limited_api` of the options of bdist_wheel, e.g. "cp39".
        command_tag: the Python that a bdist_wheel of its own tags wheels with: "cp39", "py3".
        modules: that it imports, beside the standard library.
        requires: of the package, as far as they are spelled out.
        extras: further requirements.
        python: `python_requires`.
        packages: its packages, if they are listed.
        where: the folder of the packages, "." or e.g. "src".
        ninja: False if the build says that it does without.
        unread: what only a run would tell.
    """

    name: str | None = None
    extensions: tuple[DeclaredExtension, ...] = ()
    archs: tuple[HardCodedArch, ...] = ()
    own_archs: bool = False
    variables: tuple[BuildVariable, ...] = ()
    limited_api: str | None = None
    command_tag: str | None = None
    modules: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    python: str | None = None
    packages: tuple[str, ...] | None = None
    where: str = "."
    ninja: bool = True
    unread: tuple[Unread, ...] = ()


def is_open(text: str) -> bool:
    """Whether a piece of text ends where an arch's number would begin."""
    return bool(re.search(r"(sm|compute)_\Z", text))


def archs_in(text: str) -> Iterator[CudaArch]:
    """The archs that a compiler flag names, PTX as `+PTX` of its arch."""
    machine: list[CudaArch] = []
    ptx: list[CudaArch] = []
    flags = [(one[1], (one[2] or one[3]).split(",")) for one in _CODE.finditer(text)]
    has_code = any(kind.endswith("code") for kind, _ in flags)
    for kind, names in flags:
        if has_code and not kind.endswith("code"):
            continue  # `arch=` beside `code=` says what is compiled, not what is kept.
        for name in names:
            found = _NUMBER.match(name)
            if found is None:
                continue
            suffix: Literal["", "a", "f"] = "a" if found[4] == "a" else "f" if found[4] else ""
            arch = CudaArch(int(found[2]), int(found[3]), suffix)
            (machine if found[1] == "sm" else ptx).append(arch)
            if not has_code:
                ptx.append(arch)  # nvcc keeps PTX of what `-arch` alone names.
    for arch in dict.fromkeys([*machine, *ptx]):
        yield arch.with_ptx(arch in ptx)
