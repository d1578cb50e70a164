"""A project's build in its folder: what is prepared for it, and the sandbox of its code."""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import build

import torchwheel
import torchwheel_runtime
from torchwheel.inspect.sdist import unpack
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.frontend import build_wheel, compile_step
from torchwheel.pipeline.inputs import Clock
from torchwheel.pipeline.sources import copy_project
from torchwheel.sdist.build_setup import (
    PLATFORM,
    EnvironmentTorch,
    held_nvcc,
    import_torch,
    install_beside_torch,
    sdist_environment,
    sdist_variant,
    share_torch,
    toolkit_for,
    torch_requirement,
)
from torchwheel.sdist.request import LOCK, LOG, SdistRequest
from torchwheel.sdist.sandbox import (
    Folders,
    Sandbox,
    find_sandbox,
    python_folders,
    temporary_files_in,
)
from torchwheel.smoke import environment
from torchwheel.smoke.environment import Environment
from torchwheel.steps.compiler_cache import ENDLESS, CompilerCache, folder_cache, own_server
from torchwheel.toolkit.provide import provide
from torchwheel_runtime.builder.ninja import BYTES_PER_COMPILER, parallel_jobs
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MissingModuleError, TorchwheelError
from torchwheel_runtime.toolkit.host import HostCompiler, host_compiler
from torchwheel_runtime.toolkit.toolkit_home import assemble_cuda_home, write_script

_OWN_CACHE_SIZE = "5G"


@dataclasses.dataclass(frozen=True)
class ConfinedBuild:
    """A build that is about to start: all that is prepared for it, and the sandbox of its code.

    Attributes:
        request: the call.
        folder: its folder.
        cache: torchwheel's cache.
        progress: gets its steps.
        variant: what the wheel is built for.
        torch: the torch that it is compiled with.
        base: the cached environment that holds torch.
        env: the environment of the build, on top of the base.
        host: the C++ compiler.
        jobs: compilers that may run side by side.
        environ: the variables that configure setup.py.
        toolkit: the toolkit's folder; None without CUDA.
        sandbox: what holds the project's code; None if it runs with the user's rights.
    """

    request: SdistRequest
    folder: Path
    cache: Path
    progress: Progress
    variant: Variant
    torch: EnvironmentTorch
    base: Path
    env: Environment
    host: HostCompiler
    jobs: int
    environ: Mapping[str, str]
    toolkit: Path | None
    sandbox: Sandbox | None = None

    def python(self, env: Environment, write: Sequence[Path], launcher: Sequence[str] = ()) -> Path:
        """A program that is `env`'s Python in the sandbox, with `write` as its own folders."""
        if self.sandbox is None:
            return env.python
        objects = compiler_cache(self.request, self.cache) if launcher else None
        if objects and objects.folder:
            self.sandbox.check_cache(objects.folder)
            write = [*write, objects.folder]
        compiler = self.host.path
        # Not the folder of the build itself, which nobody else may enter.
        own = [path for path in self.folder.iterdir() if path.name not in (LOCK, LOG)]
        read = [
            *(*python_folders(), self.base, compiler, compiler.resolve()),
            # The guard of nvcc and the `ninja` of a divided build.
            *(Path(half.__path__[0]) for half in (torchwheel, torchwheel_runtime)),
            *(Path(program).parent for program in launcher),
            *(path for path in (self.toolkit,) if path),
        ]
        folders = Folders(read, write, own)
        # Beside the Python: the folder of the program that builds goes onto the PATH.
        script = env.python.with_name("sandboxed-python")
        more = {**objects.variables, **ENDLESS} if objects else {}
        return self.sandbox.write_program(script, env.python, folders, launcher, more)

    @contextlib.contextmanager
    def project(
        self, write: Sequence[Path] = (), before: Callable[[str], None] = lambda _: None
    ) -> Iterator[Callable[[Path], Path]]:
        """What builds the project's wheel into a folder; for the block.

        Args:
            write: folders that it can write to, beside its own.
            before: is called with its Python when its requirements are installed.
        """
        source, copies = self.request.source.resolve(), self.folder / "source"
        copies.mkdir()
        if source.is_file():
            source = unpack(source, copies)
        else:
            # The project's code must not change its folder: git would run what .git/config names.
            copy_project(source, copies / source.name)
            source = copies / source.name

        def prepare(builder: build.ProjectBuilder) -> None:
            self.install(self.env, [*builder.build_system_requires, *self.request.requires])
            self.install(self.env, builder.get_requires_for_build("wheel"))
            before(builder.python_executable)

        def on_line(line: str) -> None:
            if step := compile_step(line):
                self.progress.step(step)

        python = self.python(
            self.env, [source, self.folder / "built", *write], self.request.launcher
        )
        with _explain_undeclared(), temporary_files_in(self.temporary):
            self.progress.step(f"building {source.name} for {self.variant.id}")
            yield lambda out: build_wheel(
                source,
                self.environ,
                out,
                self.folder / LOG,
                on_line,
                python=str(python),
                prepare=prepare,
            )

    def install(self, env: Environment, requirements: Collection[str]) -> None:
        """Install build requirements; torch stays at its release."""
        if requirements:
            what = "the build requirements"
            install_beside_torch(env, self.torch, self.folder, requirements, what)

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
    prepared = _prepare(request, folder, cache, progress, clock)
    sandbox = _sandbox(request, prepared.environ, folder, progress)
    named, place = {}, "the compiler cache"
    if request.cache:
        named, place = dict(request.cache.variables), f"--cache {request.cache.text}"
    # The sandbox has a server of its own: in it no other can be reached.
    with own_server(() if sandbox else request.launcher, named, place, request.on) as variables:
        environ = {**prepared.environ, **variables}
        yield dataclasses.replace(prepared, sandbox=sandbox, environ=environ)


def _prepare(
    request: SdistRequest, folder: Path, cache: Path, progress: Progress, clock: Clock
) -> ConfinedBuild:
    """Install torch, provide the toolkit, and make the environment of the build in `folder`."""
    with clock.step("torch"):
        pinned, options = torch_requirement(request)
        # With pytest it is the environment that smoke tests with this torch use, too.
        base = environment.base_environment(cache, ("pytest", pinned), progress, options=options)
        env = environment.layered_environment(base, folder / "env")
        share_torch(base, folder / "packages", env)
        torch = import_torch(env, folder)
    toolkit = None
    if not request.cpu:
        toolkit = toolkit_for(torch, request.toolkit, request.archs, progress.say)
    archs = toolkit.archs if toolkit else ()
    host, home, root = host_compiler(), None, None
    if toolkit:
        with clock.step("toolkit"):
            root = provide(toolkit, archs, PLATFORM, host, cache, progress)
        held = held_nvcc(request, archs, root)
        home = assemble_cuda_home(folder / "cuda", root, environment.site_of(base), held, host.path)
    cxx = host.path
    if request.launcher:
        cxx = write_script(folder / "cxx" / cxx.name, [*request.launcher, str(cxx)])
    jobs = parallel_jobs(bytes_per_job=BYTES_PER_COMPILER)
    environ = sdist_environment(env, cuda_home=home, archs=archs, host=host, cxx=cxx, jobs=jobs)
    return ConfinedBuild(
        request=request,
        folder=folder,
        cache=cache,
        progress=progress,
        variant=sdist_variant(torch, toolkit),
        torch=torch,
        base=base,
        env=env,
        host=host,
        jobs=jobs,
        environ={**environ, **request.variables},
        toolkit=root,
    )


def _sandbox(
    request: SdistRequest, variables: Iterable[str], folder: Path, progress: Progress
) -> Sandbox | None:
    """The sandbox of the project's code; says why if there is none."""
    if request.sandbox != "off" and (reason := request.network_reason()):
        if request.sandbox == "require":
            raise TorchwheelError(f"--sandbox require: expected a sandbox, found none: {reason}")
        found: Sandbox | str = reason
    else:
        found = find_sandbox(request.sandbox, folder / "sandbox", variables, progress.say)
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
