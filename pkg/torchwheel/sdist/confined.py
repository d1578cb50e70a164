"""A build of somebody's project on this machine: what it needs, its sandbox, and its import.

It is to `torchwheel build` what `Host` and `Container` are to `torchwheel wheels`.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import build
import ninja

import torchwheel
import torchwheel_runtime
from torchwheel.inspect.project_scripts import why_empty
from torchwheel.inspect.sdist import unpack
from torchwheel.inspect.wheel import Wheel
from torchwheel.pipeline.frontend import build_wheel, compile_step
from torchwheel.pipeline.inputs import Clock, claims_of
from torchwheel.pipeline.on_host import build_and_finish
from torchwheel.pipeline.own_build import (
    BuildPlaces,
    OwnBuildPlan,
    borrowing_claims,
    make_compilers,
    replace_ninja,
)
from torchwheel.pipeline.records import BuiltWheel
from torchwheel.pipeline.sources import copy_project
from torchwheel.sdist.build_setup import (
    PLATFORM,
    install_beside_torch,
    sdist_environment,
    sdist_variant,
    share_torch,
    toolkit_for,
    torch_requirement,
)
from torchwheel.sdist.request import LOCK, LOG, SdistRequest, hold_build_folder
from torchwheel.sdist.sandbox import (
    Folders,
    Sandbox,
    find_sandbox,
    python_folders,
    temporary_files_in,
)
from torchwheel.sdist.shard_lists import ShardList, objects_of
from torchwheel.smoke import environment
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.results import RunFacts
from torchwheel.smoke.testing import import_names, import_torch, run_probe
from torchwheel.steps import own_ninja, pretended_gpu
from torchwheel.steps.compiler_cache import ENDLESS, CompilerCache, folder_cache, own_server
from torchwheel.steps.graph import StepRecord, check_steps
from torchwheel.toolkit.provide import provide
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.builder.ninja import BYTES_PER_COMPILER, parallel_jobs
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MissingModuleError, TorchwheelError
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.toolkit.host import host_compiler

_OWN_CACHE_SIZE = "5G"
_WHOLE = Shard()


class ConfinedBuild:
    """A project's build in its folder, with all that is prepared for it.

    Attributes:
        request: the call.
        clock: the seconds of each step.
        torch: the torch that the wheel is compiled with.
        variant: what it is built for.
        host: the C++ compiler.
        jobs: compilers that may run side by side.
        environ: the variables that configure setup.py.
        sandbox: what holds the project's code; None if it runs with the user's rights.
        source: the project's sources; their copy, once they are built.
    """

    def __init__(
        self, request: SdistRequest, folder: Path, cache: Path, progress: Progress
    ) -> None:
        """Install torch, provide the toolkit, and make the environment of the build.

        Args:
            request: the call.
            folder: the empty folder of the build.
            cache: torchwheel's cache.
            progress: gets its steps.
        """
        self.request, self.clock = request, Clock()
        self._folder, self._cache, self._progress = folder, cache, progress
        self.source = request.source
        with self.clock.step("torch"):
            pinned, options = torch_requirement(request)
            # With pytest it is the environment that smoke tests with this torch use, too.
            self._base = environment.base_environment(
                cache, ("pytest", pinned), progress, options=options
            )
            self._env = environment.layered_environment(self._base, folder / "env")
            share_torch(self._base, folder / "packages", self._env)
            self.torch = import_torch(self._env, folder)
            if not request.cpu:
                pretended_gpu.install(self._env.site)
        toolkit, root = None, None
        if not request.cpu:
            toolkit = toolkit_for(
                self.torch,
                request.toolkit,
                request.archs,
                progress.say,
                archs_by=request.archs_by,
            )
        self.variant, self.host = sdist_variant(self.torch, toolkit), host_compiler()
        if toolkit:
            with self.clock.step("toolkit"):
                root = provide(toolkit, toolkit.archs, PLATFORM, self.host, cache, progress)
        self._plan = OwnBuildPlan(
            torch=pinned,
            requires=request.requires,
            settings={},
            archs=arch_list(toolkit.archs) if toolkit else "",
            archs_by=request.archs_by,
            backend="cuda",
            toolkit=root,
            cxx=self.host.path,
            launcher=request.launcher,
            python="each",
        )
        self._places = BuildPlaces(
            environment=environment.site_of(self._base),
            toolkit_home=folder / "cuda",
            cxx=folder / "cxx" / self.host.path.name,
            ninja=self._env.python.with_name("ninja"),
        )
        self.jobs = parallel_jobs(bytes_per_job=BYTES_PER_COMPILER)
        configured = sdist_environment(
            self._env,
            toolkit=toolkit,
            cuda_home=make_compilers(self._plan, self._places),
            host=self.host,
            cxx=self._places.cxx if request.launcher else self.host.path,
            jobs=self.jobs,
        )
        self.environ = {**configured, **request.variables}
        self.sandbox = _sandbox(request, self.environ, folder, progress)

    @property
    def _steps(self) -> Path:
        """Where the records of the steps are written, where they are divided or counted."""
        return self._folder / "steps"

    def build(self, lists: Sequence[ShardList] = ()) -> BuiltWheel:
        """The finished wheel, below the build's folder.

        With a named compiler cache it is counted how often it had an object. The objects must be
        those of the shards' `lists`, if there are any.
        """
        plan = self._plan
        if self.request.cache:
            plan = dataclasses.replace(plan, work="link")

        def claims_of_built(wheel: Path) -> Claims:
            if lists:
                check_steps([r.name for r in self._records()], lists[0].steps, "--from-shards: ")
            nothing = ", so it serves every torch: nothing is to be built"
            if self.variant.toolkit:
                nothing = f": {why_empty(self.source)}; set what turns kernels on by --env"
            # It borrows the libraries that this torch has loaded.
            return borrowing_claims(wheel, claims_of(self.variant), self.torch.loaded, nothing)

        wheel = build_and_finish(
            lambda out: self._build_into(out, plan, lists),
            claims_of_built,
            self._folder,
            self.clock,
            self._progress.step,
        )
        return BuiltWheel(wheel, cache=own_ninja.read_cache_use(self._steps) if plan.work else None)

    def divide(self, work: Literal["plan", "shard"], shard: Shard = _WHOLE) -> list[StepRecord]:
        """The steps of the build; those of the shard are compiled into the compiler cache.

        setup.py runs for it. The wheel that comes out has empty objects in it, and is thrown away.

        Raises:
            TorchwheelError: the build has no such steps.
        """
        built = self._folder / "built"
        built.mkdir()
        self._build_into(built, dataclasses.replace(self._plan, work=work, shard=str(shard)))
        if found := self._records():
            return found
        raise TorchwheelError(
            f"{self.request.source.name}: expected compile steps in a ninja graph of "
            "torch's BuildExtension, found none; build it as a whole"
        )

    def hits(self) -> int:
        """How many objects the compiler cache had."""
        return own_ninja.read_cache_use(self._steps).hits

    def smoke(self, wheel: Wheel) -> RunFacts:
        """Import a wheel in a clean environment over its torch; a failed import is an error."""
        folder = self._folder / "proof"
        cwd = folder / "imported" / "cwd"
        cwd.mkdir(parents=True)
        env = environment.layered_environment(self._base, folder / "clean")
        # Its other requirements come from the index; torch stays.
        install_beside_torch(env, self.torch, folder, [wheel.path], wheel.path.name)
        env = dataclasses.replace(env, python=self._python(env, [cwd.parent]))
        facts, _ = run_probe(env, self.request.imports or import_names(wheel), cwd)
        for package in facts.imported:
            if package.error:
                raise TorchwheelError(f"smoke: import {package.name}: {package.error}")
        return facts

    def _records(self) -> list[StepRecord]:
        return own_ninja.read_records(self._steps)

    def _build_into(self, out: Path, plan: OwnBuildPlan, lists: Sequence[ShardList] = ()) -> Path:
        """Build the project's wheel by its own build; returns it."""
        source = self.source = self._copy_source()
        write = [source, out]
        if plan.work:
            self._steps.mkdir()
            write.append(self._steps)
        if lists:
            own_ninja.write_compiled(objects_of(lists), self._steps)

        def prepare(builder: build.ProjectBuilder) -> None:
            self._install([*builder.build_system_requires, *plan.requires])
            self._install(builder.get_requires_for_build("wheel"))
            # Before PATH comes the folder of the Python that builds; the project may have installed
            # a ninja there, which may be a link into a cache.
            if plan.work:
                self._places.ninja.unlink(missing_ok=True)
            real = Path(ninja.BIN_DIR, "ninja")
            replace_ninja(plan, self._places, real, self._steps, builder.python_executable)

        def on_line(line: str) -> None:
            if step := compile_step(line):
                self._progress.step(step)

        python = self._python(self._env, write, plan.launcher)
        temporary = self.sandbox.temporary if self.sandbox else None
        with _explain_undeclared(), temporary_files_in(temporary):
            self._progress.step(f"building {source.name} for {self.variant.id}")
            return build_wheel(
                source,
                self.environ,
                out,
                self._folder / LOG,
                on_line,
                python=str(python),
                prepare=prepare,
            )

    def _copy_source(self) -> Path:
        """The project's sources in the build's folder."""
        source, copies = self.request.source.resolve(), self._folder / "source"
        copies.mkdir()
        if source.is_file():
            return unpack(source, copies)
        # The project's code must not change its folder: git would run what .git/config names.
        copy_project(source, copies / source.name)
        return copies / source.name

    def _install(self, requirements: Collection[str]) -> None:
        """Install build requirements; torch stays at its release."""
        if requirements:
            what = "the build requirements"
            install_beside_torch(self._env, self.torch, self._folder, requirements, what)

    def _python(
        self, env: Environment, write: Sequence[Path], launcher: Sequence[str] = ()
    ) -> Path:
        """A program that is `env`'s Python in the sandbox, with `write` as its own folders."""
        if self.sandbox is None:
            return env.python
        objects = compiler_cache(self.request, self._cache) if launcher else None
        if objects and objects.folder:
            self.sandbox.check_cache(objects.folder)
            write = [*write, objects.folder]
        compiler = self.host.path
        # Not the folder of the build itself, which nobody else may enter.
        own = [path for path in self._folder.iterdir() if path.name not in (LOCK, LOG)]
        read = [
            *(*python_folders(), self._base, compiler, compiler.resolve()),
            # The guard of nvcc and the `ninja` of a divided build.
            *(Path(half.__path__[0]) for half in (torchwheel, torchwheel_runtime)),
            *(Path(program).parent for program in launcher),
            *(path for path in (self._plan.toolkit,) if path),
        ]
        folders = Folders(read, write, own)
        # Beside the Python: the folder of the program that builds goes onto the PATH.
        script = env.python.with_name("sandboxed-python")
        more = {**objects.variables, **ENDLESS} if objects else {}
        return self.sandbox.write_program(script, env.python, folders, launcher, more)


def compiler_cache(request: SdistRequest, cache: Path) -> CompilerCache:
    """The compiler cache that is named, or one that a project has for itself.

    What the sandbox writes to a cache could be read by another project's build.
    """
    own = cache / "build" / f"sccache-{request.cache_key()}"
    return request.cache or folder_cache(own, _OWN_CACHE_SIZE)


@contextlib.contextmanager
def confine(request: SdistRequest, cache: Path, progress: Progress) -> Iterator[ConfinedBuild]:
    """Prepare a build in its folder, which is its own for the block."""
    named, place = {}, "the compiler cache"
    if request.cache:
        named, place = dict(request.cache.variables), f"--cache {request.cache.text}"
    with hold_build_folder(request.build_folder(cache), progress) as folder:
        made = ConfinedBuild(request, folder, cache, progress)
        # The sandbox has a server of its own: in it no other can be reached.
        launcher = () if made.sandbox else request.launcher
        with own_server(launcher, named, place, request.on) as variables:
            made.environ |= variables
            yield made


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
