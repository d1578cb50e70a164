"""Proves a finished wheel: its gates hold, and a second build gives the same bytes."""

import contextlib
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from torchwheel.check.facts import Limits
from torchwheel.check.gates import GateResult, all_passed, faults, run_gates
from torchwheel.errors import TorchwheelError
from torchwheel.files import sha256, write_atomically


def check_gates(wheel: Path, limits: Limits) -> tuple[GateResult, ...]:
    """The results of all gates; an error if one does not hold."""
    results = run_gates(wheel, limits)
    if not all_passed(results):
        raise TorchwheelError(faults(results))
    return results


@contextlib.contextmanager
def keep_rejected(wheel: Path, dist: Path) -> Iterator[None]:
    """Copy a wheel into `dist`/rejected if its proof fails, and name the copy in the error.

    The copy has a name that pip does not install.
    """
    try:
        yield
    except TorchwheelError as error:
        rejected = dist / "rejected" / f"{wheel.name}.rejected"
        with write_atomically(rejected) as temporary:
            shutil.copyfile(wheel, temporary)
        raise TorchwheelError(f"{error} (the wheel is kept as {rejected})") from error


def check_same_bytes(first: Path, second: Path) -> None:
    """Raise if two builds of a variant differ; the error names the first difference."""
    if sha256(first) != sha256(second):
        raise TorchwheelError(f"not reproducible: {_difference(first, second)}")


def _difference(first: Path, second: Path) -> str:
    """Where two wheels differ: in their names, or the first member with other bytes."""
    if first.name != second.name:
        return f"the second build is named {second.name}, not {first.name}"
    with zipfile.ZipFile(first) as left, zipfile.ZipFile(second) as right:
        names = sorted({*left.namelist(), *right.namelist()}, key=lambda n: (".dist-info/" in n, n))
        for name in names:
            if name not in left.namelist() or name not in right.namelist():
                return f"{name} is in one of two builds of {first.name} only"
            if left.read(name) != right.read(name):
                return f"{name} differs between two builds of {first.name}"
    return f"two builds of {first.name} pack the same files differently"
