"""A project's build in its folder: what is prepared for it, and the sandbox of its code."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import build

import torchwheel
import torchwheel_runtime
from torchwheel.inspect.sdist import unpack
from torchwheel.pipeline.frontend import compile_step
from torchwheel.pipeline.inputs import Clock
from torchwheel.pipeline.on_host import HostBuild
from torchwheel.pipeline.sources import copy_project
from torchwheel.sdist.build_setup import BuildSetup, RequirementsInstaller, prepare_build
from torchwheel.sdist.request import LOCK, LOG, SdistRequest
from torchwheel.sdist.sandbox import (
    Folders,
    Sandbox,
    find_sandbox,
    python_folders,
    temporary_files_in,
)
from torchwheel.smoke.environment import Environment
from torchwheel.steps.compiler_cache import ENDLESS, CompilerCache, folder_cache, own_server
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MissingModuleError, TorchwheelError

_OWN_CACHE_SIZE = "5G"


@dataclasses.dataclass(frozen=True)
class ConfinedBuild:
    """A build that is about to start.

    Attributes:
        request: the call.
        setup: what is prepared for it.
        folder: its folder.
        cache: torchwheel's cache.
        sandbox: what holds the project's code; None if it runs with the user's rights.
    """

    request: SdistRequest
    setup: BuildSetup
    folder: Path
    cache: Path
    sandbox: Sandbox | None

    def python(self, env: Environment, write: Sequence[Path], launcher: Sequence[str] = ()) -> Path:
        """A program that is `env`'s Python in the sandbox, with `write` as its own folders."""
        if self.sandbox is None:
            return env.python
        objects = compiler_cache(self.request, self.cache) if launcher else None
        if objects and objects.folder:
            self.sandbox.check_cache(objects.folder)
            write = [*write, objects.folder]
        compiler = self.setup.host.path
        # Not the folder of the build itself, which nobody else may enter.
        own = [path for path in self.folder.iterdir() if path.name not in (LOCK, LOG)]
        read = [
            *(*python_folders(), self.setup.base, compiler, compiler.resolve()),
            # The guard of nvcc and the `ninja` of a divided build.
            *(Path(half.__path__[0]) for half in (torchwheel, torchwheel_runtime)),
            *(Path(program).parent for program in launcher),
            *(path for path in (self.setup.toolkit,) if path),
        ]
        folders = Folders(read, write, own)
        # Beside the Python: the folder of the program that builds goes onto the PATH.
        script = env.python.with_name("sandboxed-python")
        more = {**objects.variables, **ENDLESS} if objects else {}
        return self.sandbox.write_program(script, env.python, folders, launcher, more)

    @contextlib.contextmanager
    def project(
        self,
        progress: Progress,
        write: Sequence[Path] = (),
        before: Callable[[str], None] = lambda _: None,
    ) -> Iterator[HostBuild]:
        """The project, and how this machine builds it; for the block.

        Args:
            progress: gets its steps.
            write: folders that it can write to, beside its own.
            before: is called with its Python when its requirements are installed.
        """
        request, setup = self.request, self.setup
        source, copies = request.source.resolve(), self.folder / "source"
        copies.mkdir()
        if source.is_file():
            source = unpack(source, copies)
        else:
            # The project's code must not change its folder: git would run what .git/config names.
            copy_project(source, copies / source.name)
            source = copies / source.name
        installer = RequirementsInstaller(setup.env, setup.torch, self.folder, request.requires)

        def prepare(builder: build.ProjectBuilder) -> None:
            installer.install_for_build(builder)
            before(builder.python_executable)

        folders = [source, self.folder / "built", *write]
        with _explain_undeclared(), temporary_files_in(self.temporary):
            progress.step(f"building {source.name} for {setup.variant.id}")
            yield HostBuild(
                source=source,
                environ=setup.environ,
                log=self.folder / LOG,
                step=progress.step,
                step_of=compile_step,
                python=str(self.python(setup.env, folders, request.launcher)),
                prepare=prepare,
            )

    @property
    def temporary(self) -> Path | None:
        """The folder for temporary files of the build and its frontend."""
        return self.sandbox.temporary if self.sandbox else None


def compiler_cache(request: SdistRequest, cache: Path) -> CompilerCache:
    """The compiler cache that is named, or one that a project has for itself.

    What the sandbox writes to a cache could be read by another project's build.
    """
    own = cache / "build" / f"sccache-{request.cache_key()}"
    return request.cache or folder_cache(own, _OWN_CACHE_SIZE)


@contextlib.contextmanager
def confine(
    request: SdistRequest, folder: Path, cache: Path, progress: Progress, clock: Clock
) -> Iterator[ConfinedBuild]:
    """Prepare a build in its empty folder; the server of its compiler cache ends with the block."""
    setup = prepare_build(request, folder, cache, progress, clock)
    sandbox = _sandbox(request, setup, folder, progress)
    named, place = {}, "the compiler cache"
    if request.cache:
        named, place = dict(request.cache.variables), f"--cache {request.cache.text}"
    # The sandbox has a server of its own: in it no other can be reached.
    with own_server(() if sandbox else request.launcher, named, place, request.on) as variables:
        setup = dataclasses.replace(setup, environ={**setup.environ, **variables})
        yield ConfinedBuild(request, setup, folder, cache, sandbox)


def _sandbox(
    request: SdistRequest, setup: BuildSetup, folder: Path, progress: Progress
) -> Sandbox | None:
    """The sandbox of the project's code; says why if there is none."""
    if request.sandbox != "off" and (reason := request.network_reason()):
        if request.sandbox == "require":
            raise TorchwheelError(f"--sandbox require: expected a sandbox, found none: {reason}")
        found: Sandbox | str = reason
    else:
        found = find_sandbox(request.sandbox, folder / "sandbox", setup.environ, progress.say)
    if isinstance(found, Sandbox):
        return found
    if request.sandbox != "off":
        progress.say(f"no sandbox: {request.source.name} runs with your rights: {found}")
    return None


@contextlib.contextmanager
def _explain_undeclared() -> Iterator[None]:
    """Name --with in the error of a build that lacks a module."""
    try:
        yield
    except MissingModuleError as error:
        text = "if the build needs what the project does not say, add --with REQUIREMENT"
        raise MissingModuleError(f"{error}; {text}") from error
