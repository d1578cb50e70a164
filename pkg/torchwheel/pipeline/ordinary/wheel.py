"""From a project to its wheel: built, repaired and stamped, and not yet proven."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchwheel.check.runtime_table import may_borrow
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.inspect.elf import read_library
from torchwheel.inspect.wheel import extracted, read_wheel
from torchwheel.pipeline.clock import Clock
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.ordinary.environment import Requirements
from torchwheel.pipeline.ordinary.folder import LOG
from torchwheel.pipeline.ordinary.prepare import Prepared
from torchwheel.pipeline.ordinary.progress import doing
from torchwheel.pipeline.ordinary.request import Request
from torchwheel.pipeline.ordinary.sdist import unpack
from torchwheel.pipeline.ordinary.target import Target
from torchwheel.pipeline.repair import repair
from torchwheel.pipeline.stamp import stamp


def make_wheel(
    request: Request, prepared: Prepared, folder: Path, progress: Progress, clock: Clock
) -> Path:
    """The built, repaired and stamped wheel, below `folder`."""
    for name in ("source", "built", "repaired", "stamped"):
        (folder / name).mkdir()
    target = prepared.target
    project = request.source.resolve()
    if project.is_file():
        project = unpack(project, folder / "source")

    def heard(line: str) -> None:
        if text := doing(line):
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
    except TorchwheelError as error:
        if str(error).startswith("ModuleNotFoundError"):
            text = "if the build needs what the project does not say, add --with REQUIREMENT"
            raise TorchwheelError(f"{error}; {text}") from error
        raise


def _borrowed(wheel: Path, target: Target) -> tuple[str, ...]:
    """Libraries that the wheel needs and that this torch has loaded before it."""
    claims = target.claims(None, ())
    with extracted(read_wheel(wheel)) as files:
        libraries = [read_library(file.path, file.member) for file in files]
    if not libraries:
        raise TorchwheelError(
            f"{wheel.name}: no library in it, so it serves every torch: nothing is to be built"
        )
    needed = {name for library in libraries for name in library.needed}
    return tuple(sorted(n for n in needed & target.torch.loaded if may_borrow(n, claims)))
