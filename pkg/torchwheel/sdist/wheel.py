"""Builds, repairs, stamps and proves the wheel of an sdist."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from packaging.utils import parse_wheel_filename

from torchwheel.check.audit import may_borrow
from torchwheel.check.facts import Limits
from torchwheel.check.gates import GateResult, all_passed, faults, run_gates
from torchwheel.console import Progress
from torchwheel.errors import MissingModuleError, TorchwheelError
from torchwheel.inspect.elf import read_library
from torchwheel.inspect.wheel import extract, read_wheel
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.repair import repair, stamp
from torchwheel.pipeline.run import Clock
from torchwheel.sdist.archive import unpack
from torchwheel.sdist.environment import Requirements
from torchwheel.sdist.prepare import Prepared
from torchwheel.sdist.request import LOG, SdistRequest
from torchwheel.sdist.target import EnvironmentTorch, SdistTarget
from torchwheel.smoke import environment
from torchwheel.smoke.importing import importable, imports
from torchwheel.smoke.record import Imported, MachineRecord

_COUNT = re.compile(r"\[\d+/\d+\]")
_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")


def progress_of(line: str) -> str | None:
    """Of a compiler's command, or ninja's line, e.g. "[2/9] compiling x.cu"; of others None."""
    words = line.split()
    after = [word for option, word in itertools.pairwise(words) if option == "-c"]
    source = next((word for word in after if word.endswith(_SOURCES)), None)
    if source is None:
        return None
    count = f"{words[0]} " if _COUNT.fullmatch(words[0]) else ""
    return f"{count}compiling {PurePath(source).name}"


def make_wheel(
    request: SdistRequest, prepared: Prepared, folder: Path, progress: Progress, clock: Clock
) -> Path:
    """The built, repaired and stamped wheel, below `folder`."""
    for name in ("source", "built", "repaired", "stamped"):
        (folder / name).mkdir()
    target = prepared.target
    project = request.source.resolve()
    if project.is_file():
        project = unpack(project, folder / "source")

    def heard(line: str) -> None:
        if text := progress_of(line):
            progress.step(text)

    with clock.step("build"), _undeclared_is_explained():
        progress.step(f"building {project.name} for {target.variant}")
        built = build_wheel(
            project,
            prepared.environ,
            folder / "built",
            folder / LOG,
            heard,
            python=str(prepared.env.python),
            ready=Requirements(prepared.env, target.torch, folder, request.requires).of_build,
        )
    with clock.step("repair"):
        progress.step("auditwheel repair")
        borrowed = _borrowed(built, target)
        repaired = repair(built, folder / "repaired", borrowed)
    own_local = parse_wheel_filename(built.name)[1].local
    return stamp(repaired, target.claims(own_local, borrowed), folder / "stamped")


@contextlib.contextmanager
def _undeclared_is_explained() -> Iterator[None]:
    try:
        yield
    except MissingModuleError as error:
        text = "if the build needs what the project does not say, add --with REQUIREMENT"
        raise MissingModuleError(f"{error}; {text}") from error


def _borrowed(wheel: Path, target: SdistTarget) -> tuple[str, ...]:
    """Libraries that the wheel needs and that this torch has loaded before it."""
    claims = target.claims(None, ())
    with extract(read_wheel(wheel)) as files:
        libraries = [read_library(file.path, file.member) for file in files]
    if not libraries:
        raise TorchwheelError(
            f"{wheel.name}: no library in it, so it serves every torch: nothing is to be built"
        )
    needed = {name for library in libraries for name in library.needed}
    return tuple(sorted(n for n in needed & target.torch.loaded if may_borrow(n, claims)))


@dataclasses.dataclass(frozen=True)
class Proof:
    """What was found of a wheel; `borrowed` are the libraries it needs that torch brings."""

    gates: tuple[GateResult, ...]
    machine: MachineRecord
    imported: tuple[Imported, ...]
    borrowed: tuple[str, ...]


def prove(
    wheel: Path,
    *,
    limits: Limits,
    names: Sequence[str],
    torch: EnvironmentTorch,
    base: Path,
    folder: Path,
) -> Proof:
    """Judge and try a wheel; raises with the first fact that is against it.

    Args:
        wheel: the file.
        limits: limits of the gates.
        names: what is imported; what the wheel installs if there are none.
        torch: the torch it is for.
        base: the cached environment that holds this torch.
        folder: an empty folder.
    """
    gates = run_gates(wheel, limits)
    if not all_passed(gates):
        raise TorchwheelError(faults(gates))
    # Its own requirements come from the index, torch stays.
    env = environment.over(base, folder / "clean")
    Requirements(env, torch, folder).install([str(wheel)], wheel.name)
    cwd = folder / "cwd"
    cwd.mkdir()
    facts = read_wheel(wheel)
    machine, imported = imports(env, names or importable(facts), cwd)
    for one in imported:
        if one.error:
            raise TorchwheelError(f"smoke: import {one.name}: {one.error}")
    borrowed = facts.claims.borrowed if facts.claims else ()
    return Proof(gates, machine, imported, borrowed)
