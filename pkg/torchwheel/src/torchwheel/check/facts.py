"""Reads the facts that the gates judge, once per wheel."""

import contextlib
import dataclasses
import fnmatch
import functools
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from torchwheel.check.audit import Audit, audit, provided_by_torch
from torchwheel.check.declared import Declared
from torchwheel.inspect.wheel import OpenWheel, Wheel, open_wheel
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.cuda import find_cuobjdump
from torchwheel_runtime.inspect.elf import GpuCode, Library, read_library, symbol_count
from torchwheel_runtime.inspect.hip import read_gpu_code
from torchwheel_runtime.inspect.window import CpuTime, WheelError


@dataclasses.dataclass(frozen=True)
class Allowed:
    """A finding of a gate that the project means: in the libraries of a pattern, and why."""

    gate: str
    library: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the gates."""

    max_size_mib: float
    newest_glibc: str | None = None
    """The newest C library a wheel may need, "2.28"; None for any."""
    project: Declared | None = None
    """The project that the wheel is of; None if its sources are not at hand."""
    allowed: tuple[Allowed, ...] = ()
    """The findings that the project means."""

    def reason(self, gate: str, library: str) -> str | None:
        """Why a finding of a gate in a library is meant; None if it is not."""
        for one in self.allowed:
            if one.gate == gate and fnmatch.fnmatchcase(library, one.library):
                return one.reason
        return None


T = TypeVar("T")


class GateError(TorchwheelError):
    """A gate does not hold; the text says why."""


@dataclasses.dataclass(frozen=True)
class Fact(Generic[T]):
    """A value that was read, or the reason why it could not be: then each gate of it fails."""

    value: T | None = None
    fault: str | None = None

    def read(self) -> T:
        """The value, or a GateError with the reason it is missing."""
        if self.value is None:
            raise GateError(self.fault or "not read")
        return self.value


@dataclasses.dataclass(frozen=True)
class WheelFacts:
    """One wheel as the gates see it."""

    wheel: Fact[Wheel]
    libraries: Fact[tuple[Library, ...]]
    gpu_code: Fact[Mapping[str, tuple[GpuCode, ...]]]
    """The modules of GPU code, by the library's path in the wheel."""
    audit: Fact[Audit]

    @property
    def claims(self) -> Claims:
        """The wheel's claims; a wheel without claims fails every gate that compares them."""
        claims = self.wheel.read().claims
        if claims is None:
            raise GateError("no torchwheel.json in the wheel's dist-info: it claims nothing")
        return claims


def fact(read: Callable[[], T], broke: str = "") -> Fact[T]:
    """Read a value or ask a gate; any failure becomes the fault: both fail closed.

    `broke` begins the text about an error that is none of ours.
    """
    try:
        return Fact(value=read())
    except TorchwheelError as error:
        return Fact(fault=str(error))
    # Any error on a malformed file is a failed gate, not a crash.
    except Exception as error:
        return Fact(fault=f"{broke}{type(error).__name__}: {' '.join(str(error).split())}")


def read_facts(path: Path, program: Path | None = None) -> WheelFacts:
    """Read a wheel's facts; `program` is the cuobjdump to ask, looked for if none is given."""
    importlib.import_module("auditwheel")  # where it is missing, no wheel is at fault
    with contextlib.ExitStack() as stack:
        opened = fact(lambda: stack.enter_context(open_wheel(path)))
        if opened.value:
            return _facts_of(opened.value, program)
    return WheelFacts(Fact(fault=opened.fault), Fact(), Fact(), Fact())


def read_audit(path: Path) -> Audit:
    """What auditwheel says of a wheel; any fault of the wheel is an error."""
    with open_wheel(path) as opened, opened.extract() as files:
        return _audit(opened.wheel, _libraries(files))


def _facts_of(opened: OpenWheel, program: Path | None) -> WheelFacts:
    with opened.extract() as files:
        libraries = fact(lambda: _libraries(files))
        return WheelFacts(
            wheel=Fact(opened.wheel),
            libraries=libraries,
            gpu_code=fact(lambda: _gpu_code(files, program)),
            audit=fact(lambda: _audit(opened.wheel, libraries.read())),
        )


def _libraries(files: Mapping[str, Path]) -> tuple[Library, ...]:
    symbols = sum(map(symbol_count, files.values()))
    if symbols > budgets.SYMBOLS_OF_WHEEL:
        raise WheelError(
            f"{symbols} symbols in its libraries; at most {budgets.SYMBOLS_OF_WHEEL} expected"
        )
    return tuple(read_library(path, member) for member, path in files.items())


def _gpu_code(files: Mapping[str, Path], program: Path | None) -> Mapping[str, tuple[GpuCode, ...]]:
    cpu = CpuTime()
    find_program = functools.partial(find_cuobjdump, program)
    return {member: read_gpu_code(path, find_program, cpu) for member, path in files.items()}


def _audit(wheel: Wheel, libraries: tuple[Library, ...]) -> Audit:
    provided = provided_by_torch(wheel.claims) if wheel.claims else frozenset[str]()
    return audit(wheel.path, provided, libraries)
