"""`torchwheel build`: from an sdist to a proven wheel and its record."""

import contextlib
import dataclasses
import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchwheel.builder import nvcc
from torchwheel.check.audit import may_borrow
from torchwheel.check.facts import Limits
from torchwheel.check.gates import GateResult
from torchwheel.claims import Claims
from torchwheel.console import Progress
from torchwheel.errors import MissingModuleError, TorchwheelError
from torchwheel.files import sha256, write_atomically, write_text
from torchwheel.inspect.elf import read_library
from torchwheel.inspect.sdist import unpack
from torchwheel.inspect.wheel import Wheel, extract, read_wheel
from torchwheel.pipeline.frontend import compile_step
from torchwheel.pipeline.inputs import claims_of
from torchwheel.pipeline.on_host import HostBuild, build_and_finish
from torchwheel.pipeline.proof import check_gates, keep_rejected
from torchwheel.pipeline.records import BuildRecord, record_wheel
from torchwheel.pipeline.report import report_table
from torchwheel.pipeline.run import Clock
from torchwheel.sdist.environment import (
    BuildSetup,
    RequirementsInstaller,
    prepare_build,
)
from torchwheel.sdist.request import LOG, SdistRequest, check_request, hold_build_folder
from torchwheel.sdist.sandbox import (
    Folders,
    Sandbox,
    compiler_cache,
    find_sandbox,
    python_folders,
    temporary_files_in,
)
from torchwheel.smoke import environment
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.importing import import_names, run_probe
from torchwheel.smoke.record import ImportRecord, MachineRecord
from torchwheel.toolkit.cuda_home import write_script

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class SdistRecord:
    """One finished wheel.

    Attributes:
        source: file or folder name of the project.
        source_sha256: of an archive.
        torch: the torch it was compiled with.
        toolkit: the CUDA release that compiled it; None without CUDA.
        compiler: the C++ compiler.
        jobs: compilers that were allowed side by side.
        wheel: the record that `torchwheel wheels` writes of its own wheels too.
        gates: the result of each gate.
        machine: where it was imported.
        imported: what was imported there.
        borrowed: libraries that it needs and torch loads.
        sandbox: what held the project's code; None if it ran with the user's rights.
    """

    source: str
    source_sha256: str | None
    torch: str
    toolkit: str | None
    compiler: str
    jobs: int
    wheel: BuildRecord
    gates: tuple[GateResult, ...]
    machine: MachineRecord
    imported: tuple[ImportRecord, ...]
    borrowed: tuple[str, ...]
    sandbox: str | None


def dump_record(record: SdistRecord) -> str:
    """JSON in a fixed order."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1) + "\n"


def closing_text(record: SdistRecord, dist: Path) -> str:
    """The table, and the command that installs the wheel."""
    table = report_table([record.wheel], [record.wheel.variant])
    command = shlex.join(["pip", "install", str(dist / record.wheel.file)])
    return f"{table}\n\nTo install:\n  {command}"


def build_sdist(request: SdistRequest, cache: Path, progress: Progress) -> SdistRecord:
    """Build, repair, stamp, check and import a wheel, then put it and its record into `dist`."""
    check_request(request)
    clock = Clock()
    with hold_build_folder(cache / "build" / f"sdist-{request.key()}", progress) as folder:
        with clock.step("total"):
            setup = prepare_build(request, folder, cache, progress, clock)
            sandbox = _sandbox(request, setup, folder, progress)
            confined = _Confined(request, setup, folder, cache, sandbox)
            wheel = _build(request, setup, confined, folder, progress, clock)
            progress.step(f"gates and import of {wheel.name}")
            with clock.step("proof"), keep_rejected(wheel, request.dist):
                gates = check_gates(wheel, Limits(request.max_size_mib))
                facts = read_wheel(wheel)
                machine, imported = _import_installed(request, setup, confined, facts)
        key = request.key()
        record = SdistRecord(
            source=request.source.name,
            source_sha256=sha256(request.source) if request.source.is_file() else None,
            torch=setup.torch.built.version,
            toolkit=setup.variant.toolkit.version if setup.variant.toolkit else None,
            compiler=f"{setup.host.family} {setup.host.version}",
            jobs=setup.jobs,
            wheel=record_wheel(setup.variant, key, wheel, gates, "imported", clock.seconds),
            gates=gates,
            machine=machine,
            imported=imported,
            borrowed=facts.claims.borrowed if facts.claims else (),
            sandbox="bubblewrap" if confined.sandbox else None,
        )
        write_text(request.dist / f"{wheel.name}.json", dump_record(record))
        with write_atomically(request.dist / wheel.name) as temporary:
            shutil.copyfile(wheel, temporary)
    return record


def _sandbox(
    request: SdistRequest, setup: BuildSetup, folder: Path, progress: Progress
) -> Sandbox | None:
    """The sandbox of the project's code; says why if there is none."""
    found = find_sandbox(request.sandbox, folder / "sandbox", setup.environ)
    if isinstance(found, Sandbox):
        return found
    if request.sandbox != "off":
        progress.say(f"no sandbox: {request.source.name} runs with your rights: {found}")
    return None


@dataclasses.dataclass(frozen=True)
class _Confined:
    """Runs a Python in the sandbox, if there is one."""

    request: SdistRequest
    setup: BuildSetup
    folder: Path
    cache: Path
    sandbox: Sandbox | None

    @property
    def temporary(self) -> Path | None:
        """The folder for temporary files of the build and its frontend."""
        return self.sandbox.temporary if self.sandbox else None

    def python(self, env: Environment, write: Sequence[Path], launcher: Sequence[str] = ()) -> Path:
        """A program that is `env`'s Python in the sandbox, with `write` as its own folders."""
        if self.sandbox is None:
            return env.python
        objects = self.cache / "build" / f"sccache-{self.request.cache_key()}"
        compiler = self.setup.host.path
        read = [
            *(*python_folders(), self.cache, self.folder, compiler, compiler.resolve()),
            Path(nvcc.__file__),
            *(Path(program).parent for program in launcher),
            *(path for path in (self.setup.toolkit,) if path),
        ]
        folders = Folders(
            read=read,
            write=[*write, *([objects] if launcher else [])],
            hidden=[self.cache / "build"],
        )
        # Beside the Python: the folder of the program that builds goes onto the PATH.
        script = env.python.with_name("sandboxed-python")
        more = compiler_cache(launcher, objects)
        return write_script(script, self.sandbox.command(env.python, folders, launcher, more))


def _build(
    request: SdistRequest,
    setup: BuildSetup,
    confined: _Confined,
    folder: Path,
    progress: Progress,
    clock: Clock,
) -> Path:
    """The finished wheel, below `folder`."""
    source = request.source.resolve()
    if source.is_file():
        (folder / "source").mkdir()
        source = unpack(source, folder / "source")
    requirements = RequirementsInstaller(setup.env, setup.torch, folder, request.requires)
    project = HostBuild(
        source=source,
        environ=setup.environ,
        log=folder / LOG,
        step=progress.step,
        step_of=compile_step,
        python=str(confined.python(setup.env, [source, folder / "built"], request.launcher)),
        prepare=requirements.install_for_build,
    )
    with _explain_undeclared(), temporary_files_in(confined.temporary):
        progress.step(f"building {source.name} for {setup.variant.id}")
        return build_and_finish(project, lambda built: _claims(built, setup), folder, clock)


@contextlib.contextmanager
def _explain_undeclared() -> Iterator[None]:
    """Name --with in the error of a build that lacks a module."""
    try:
        yield
    except MissingModuleError as error:
        text = "if the build needs what the project does not say, add --with REQUIREMENT"
        raise MissingModuleError(f"{error}; {text}") from error


def _claims(wheel: Path, setup: BuildSetup) -> Claims:
    """The claims of a built wheel; it borrows the libraries that this torch has loaded."""
    with extract(read_wheel(wheel)) as files:
        libraries = [read_library(file.path, file.member) for file in files]
    if not libraries:
        raise TorchwheelError(
            f"{wheel.name}: no library in it, so it serves every torch: nothing is to be built"
        )
    plain = claims_of(setup.variant)
    needed = {name for library in libraries for name in library.needed}
    borrowed = sorted(name for name in needed & setup.torch.loaded if may_borrow(name, plain))
    return claims_of(setup.variant, parse_wheel_filename(wheel.name)[1].local, borrowed)


def _import_installed(
    request: SdistRequest, setup: BuildSetup, confined: _Confined, wheel: Wheel
) -> tuple[MachineRecord, tuple[ImportRecord, ...]]:
    """Import a wheel in a clean environment over its torch; an import that fails is an error."""
    folder = confined.folder / "proof"
    cwd = folder / "imported" / "cwd"
    cwd.mkdir(parents=True)
    env = environment.layered_environment(setup.base, folder / "clean")
    # Its other requirements come from the index; torch stays.
    RequirementsInstaller(env, setup.torch, folder).install([str(wheel.path)], wheel.path.name)
    env = dataclasses.replace(env, python=confined.python(env, [cwd.parent]))
    facts, _ = run_probe(env, request.imports or import_names(wheel), cwd)
    for package in facts.imported:
        if package.error:
            raise TorchwheelError(f"smoke: import {package.name}: {package.error}")
    return facts.machine, facts.imported
