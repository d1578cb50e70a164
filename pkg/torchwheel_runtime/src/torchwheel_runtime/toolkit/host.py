"""The C++ compiler of the host, and the check that a toolkit accepts it."""

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError

# clang defines gcc's macros too, so it comes first.
_VERSION_MACROS = {
    "clang": ("__clang_major__", "__clang_minor__", "__clang_patchlevel__"),
    "gcc": ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"),
}


class NoCompilerError(TorchwheelError):
    """There is no C++ compiler that can be used.

    Attributes:
        reason: the message without the advice, e.g. "CXX=gxx: not found".
    """

    def __init__(self, reason: str, do: str) -> None:
        super().__init__(f"{reason}; {do}")
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class HostCompiler:
    """A C++ compiler: its path, its family ("gcc" or "clang") and its version."""

    path: Path
    family: str
    version: str


def host_compiler(environ: Mapping[str, str] = os.environ) -> HostCompiler:
    """CXX, else g++, else c++, else clang++ on the PATH."""
    names = [environ["CXX"]] if environ.get("CXX") else ["g++", "c++", "clang++"]
    for name in names:
        if path := shutil.which(name, path=environ.get("PATH")):
            return _identify(Path(path))
    if environ.get("CXX"):
        raise NoCompilerError(
            f"CXX={environ['CXX']}: not found", "name a C++ compiler that is there"
        )
    raise NoCompilerError(
        "no C++ compiler (g++, c++ or clang++) on the PATH",
        "install one, e.g. `apt-get install g++`, or set CXX",
    )


def _identify(path: Path) -> HostCompiler:
    done = process.run([path, "-dM", "-E", "-x", "c++", os.devnull])
    macros = dict(re.findall(r"#define (__(?:clang|GNUC)\w*__) (\d+)", done.output))
    for family, parts in _VERSION_MACROS.items():
        if parts[0] in macros:
            return HostCompiler(path, family, ".".join(macros[part] for part in parts))
    raise NoCompilerError(f"{path}: neither gcc nor clang", "set CXX to one of these")


def is_within(compiler: HostCompiler, bounds: Mapping[str, str]) -> bool:
    """Whether a toolkit with these bounds, e.g. {"gcc": ">=6,<16"}, takes the compiler."""
    # Not for a first call on a GPU, which imports this module and compiles nothing.
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415

    bound = bounds.get(compiler.family)
    return bound is not None and compiler.version in SpecifierSet(bound)


def check_bounds(compiler: HostCompiler, bounds: Mapping[str, str], toolkit: str) -> None:
    """Refuse a compiler outside the toolkit's bounds."""
    if not is_within(compiler, bounds):
        accepted = " or ".join(f"{family} {spec}" for family, spec in bounds.items())
        raise TorchwheelError(
            f"{compiler.path} is {compiler.family} {compiler.version}; {toolkit} takes {accepted}: "
            "set CXX to such a compiler"
        )
