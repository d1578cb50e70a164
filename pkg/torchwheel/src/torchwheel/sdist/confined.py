"""A build of somebody's project on this machine: what it needs, its sandbox, and its import.

It is to `torchwheel build` what `Host` and `Container` are to `torchwheel wheels`.
"""

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import build
import ninja

import torchwheel
import torchwheel_runtime
from torchwheel.compilers import ninja_program, pretended_gpu
from torchwheel.compilers.compile_steps import StepRecord, check_steps
from torchwheel.compilers.compiler_cache import ENDLESS, CompilerCache, folder_cache, own_server
from torchwheel.inspect.project_scripts import why_empty
from torchwheel.inspect.sbom import pypi_material
from torchwheel.inspect.wheel import Wheel
from torchwheel.pipeline.build_records import BuiltWheel
from torchwheel.pipeline.frontend import build_wheel, compile_step
from torchwheel.pipeline.inputs import Clock, claims_of
from torchwheel.pipeline.materials import toolkit_materials
from torchwheel.pipeline.on_host import build_and_finish
from torchwheel.pipeline.own_build import (
    BuildPlaces,
    OwnBuildPlan,
    Work,
    borrowing_claims,
    make_compilers,
    planned_variables,
    replace_ninja,
)
from torchwheel.pipeline.repair import BuildMaterials
from torchwheel.sdist.build_folder import (
    LOCK,
    LOG,
    OBJECTS,
    copy_source,
    hold_build_folder,
    inputs_of,
    keep_objects,
    link_siblings,
)
from torchwheel.sdist.build_setup import (
    PLATFORM,
    host_for,
    install_beside_torch,
    sdist_environment,
    sdist_variant,
    share_torch,
    toolkit_for,
    torch_requirement,
)
from torchwheel.sdist.failures import HiddenThings, explain_failure
from torchwheel.sdist.project_settings import read_settings
from torchwheel.sdist.request import SdistRequest
from torchwheel.sdist.sandbox import (
    Sandbox,
    find_sandbox,
    python_folders,
    temporary_files_in,
)
from torchwheel.sdist.shard_lists import ShardList, objects_of
from torchwheel.smoke import trial_environment
from torchwheel.smoke.results import RunFacts
from torchwheel.smoke.testing import import_names, import_torch, run_probe
from torchwheel.smoke.trial_environment import Environment
from torchwheel.toolkit.provide import provide
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.arch.releases import cxx_standard
from torchwheel_runtime.builder.ninja import BYTES_PER_COMPILER, parallel_jobs
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.shards import Shard

_OWN_CACHE_SIZE, _COPIES = "5G", "source"
_WHOLE = Shard()


class ConfinedBuild:
    """A project's build in its folder, with all that is prepared for it.

    Attributes:
        request: the call, with what the project says itself.
        clock: the seconds of each step.
        torch: the torch that the wheel is compiled with.
        variant: what it is built for.
        host: the C++ compiler.
        jobs: compilers that may run side by side.
        environ: the variables that configure setup.py.
        sandbox: what holds the project's code; None if it runs with the user's rights.
        source: a copy of the project's sources.
        script: what its build scripts name; None if they cannot be read.
    """

    def __init__(
        self,
        request: SdistRequest,
        folder: Path,
        cache: Path,
        progress: Progress,
        work: Work = "",
        shard: Shard = _WHOLE,
    ) -> None:
        """Copy the project, install torch, provide the toolkit, make the build's environment.

        Args:
            request: the call.
            folder: the empty folder of the build.
            cache: torchwheel's cache.
            progress: gets its steps.
            work: what is done with its steps, as in `OwnBuildPlan`.
            shard: the part that is compiled, of "shard".
        """
        self.clock = Clock(progress)
        self._folder, self._cache, self._progress = folder, cache, progress
        self.source = copy_source(request.source.resolve(), folder / _COPIES)
        own = read_settings(self.source)
        self.script = own.script
        self.request = request = own.complete(request)
        self.host = host_for(request)
        with self.clock.step("torch"):
            pinned, options = torch_requirement(request)
            # With pytest it is the environment that smoke tests with this torch use, too.
            self._base = trial_environment.base_environment(
                cache, ("pytest", pinned), progress, options=options
            )
            self._env = trial_environment.layered_environment(self._base, folder / "env")
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
                own,
                progress.say,
                archs_by=request.archs_by,
            )
        archs, name = (arch_list(toolkit.archs), toolkit.name) if toolkit else ("", "")
        archs_by, lines = request.archs_by, [own.says(name)]
        if toolkit and archs_by is None:
            archs_by = own.archs(toolkit.release)[1]
            lines.append(own.check_archs(toolkit.release, archs))
        for line in filter(None, lines):
            progress.say(line)
        self.variant = sdist_variant(self.torch, toolkit)
        if toolkit:
            with self.clock.step("toolkit"):
                root = provide(toolkit, PLATFORM, self.host, cache, progress)
        self._plan = OwnBuildPlan(
            torch=pinned,
            requires=request.requires,
            settings={},
            archs=archs,
            archs_by=archs_by or "environment",
            backend="cuda",
            toolkit=root,
            cxx=self.host.path,
            launcher=request.launcher,
            python="each",
            standard=cxx_standard(self.torch.minor),
            work=work,
            shard=str(shard),
        )
        self._places = BuildPlaces(
            environment=trial_environment.site_of(self._base),
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
            cxx=self._places.cxx,
            jobs=self.jobs,
        )
        planned = planned_variables(self._places, self.source) if work == "plan" else {}
        self.environ = {**configured, **request.variables, **planned}
        given = {name for name in configured if name != "FORCE_CUDA"} | {*request.variables}
        self._own = {n: text for n, text in own.variables(name).items() if n not in given}
        self.sandbox = _sandbox(request, self.environ, folder, progress)
        if self.sandbox is None:
            self.environ |= self._own

    @property
    def _steps(self) -> Path:
        """Where the records of the steps are written, where they are divided or counted."""
        return self._folder / "steps"

    def build(self, lists: Sequence[ShardList] = ()) -> BuiltWheel:
        """The finished wheel, below the build's folder.

        With a named compiler cache it is counted how often it had an object. The objects must be
        those of the shards' `lists`, if there are any.
        """

        def claims_of_built(wheel: Path) -> Claims:
            if lists:
                check_steps([r.name for r in self._records()], lists[0].steps, "--from-shards: ")
            nothing = ", so it serves every torch: nothing is to be built"
            if self.variant.toolkit:
                nothing = f": {why_empty(self.source)}; set what turns kernels on by --env"
            # It borrows the libraries that this torch has loaded.
            return borrowing_claims(wheel, claims_of(self.variant), self.torch.loaded, nothing)

        wheel = build_and_finish(
            lambda out: self._build_into(out, lists),
            claims_of_built,
            self._folder,
            self.clock,
            self._progress.step,
            self._materials(),
        )
        use = ninja_program.read_cache_use(self._steps) if self._plan.work else None
        return BuiltWheel(wheel, cache=use)

    def _materials(self) -> BuildMaterials:
        """The materials of its libraries; no lock has the torch of an environment."""
        torch = pypi_material("headers", "torch", self.torch.version)
        locked = (*toolkit_materials(self.variant.toolkit, self.variant.platform), torch)
        return BuildMaterials(locked, str(self.host.path), static_cxx=False)

    def divide(self) -> list[StepRecord]:
        """The steps of the build; those of its shard are compiled into the compiler cache.

        setup.py runs for it. The wheel that comes out has empty objects in it, and is thrown away.

        Raises:
            TorchwheelError: the build has no such steps.
        """
        built = self._folder / "built"
        built.mkdir()
        self._build_into(built)
        if found := self._records():
            return found
        raise TorchwheelError(
            f"{self.request.name}: expected compile steps in a ninja graph of "
            "torch's BuildExtension, found none (use_ninja=False, make or CMake?); build it as a "
            "whole"
        )

    def hits(self) -> int:
        """How many objects the compiler cache had."""
        return ninja_program.read_cache_use(self._steps).hits

    def smoke(self, wheel: Wheel) -> RunFacts:
        """Import a wheel in a clean environment over its torch; a failed import is an error."""
        folder = self._folder / "proof"
        cwd = folder / "imported" / "cwd"
        cwd.mkdir(parents=True)
        env = trial_environment.layered_environment(self._base, folder / "clean")
        # Its other requirements come from the index; torch stays.
        install_beside_torch(env, self.torch, folder, [wheel.path], wheel.path.name)
        env = dataclasses.replace(env, python=self._python(env, [cwd.parent]))
        with explain_failure(self._hidden):
            facts, _ = run_probe(env, self.request.imports or import_names(wheel), cwd)
            for package in facts.imported:
                if package.error:
                    raise TorchwheelError(f"smoke: import {package.name}: {package.error}")
        return facts

    @property
    def _hidden(self) -> HiddenThings | None:
        """What the sandbox hides; None without a sandbox."""
        if self.sandbox is None:
            return None
        shown = [self._cache, *map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep))]
        project, variables = self.request.source.resolve(), {**self._own, **self.request.variables}
        return HiddenThings(project, self.source, self._folder / _COPIES, shown, variables)

    def _records(self) -> list[StepRecord]:
        return ninja_program.read_records(self._steps)

    def _build_into(self, out: Path, lists: Sequence[ShardList] = ()) -> Path:
        """Build the project's wheel by its own build; returns it."""
        source, plan, log = self.source, self._plan, self._folder / LOG
        settings, objects = self.request.settings, None
        write = [source, out]
        if plan.work:
            self._steps.mkdir()
            write.append(self._steps)
        else:
            objects = self._folder / OBJECTS / "build"
            objects.mkdir(parents=True, exist_ok=True)
            write.append(objects)
        if lists:
            ninja_program.write_compiled(objects_of(lists), self._steps)
        if self.sandbox is None:
            link_siblings(self.request.source.resolve(), source)

        def prepare(builder: build.ProjectBuilder) -> None:
            self._install([*builder.build_system_requires, *plan.requires])
            self._install(builder.get_requires_for_build("wheel", settings))
            # Before PATH comes the folder of the Python that builds; the project may have installed
            # a ninja there, which may be a link into a cache.
            if plan.work:
                self._places.ninja.unlink(missing_ok=True)
            real = Path(ninja.BIN_DIR, "ninja")
            replace_ninja(plan, self._places, real, self._steps, builder.python_executable)
            if objects:
                keep_objects(self._folder, self._inputs())

        def on_line(line: str) -> None:
            if step := compile_step(line):
                self._progress.step(*step)

        python = self._python(self._env, write, plan.launcher, self._own)
        temporary = self.sandbox.temporary if self.sandbox else None
        with explain_failure(self._hidden, log), temporary_files_in(temporary):
            return build_wheel(
                source,
                self.environ,
                out,
                log,
                on_line,
                python=str(python),
                prepare=prepare,
                settings=settings,
                objects=objects,
            )

    def _inputs(self) -> str:
        """All that decides the objects of the build."""
        packages = sorted(path.name for path in self._env.site.glob("*.dist-info"))
        # A compiler may read a variable that no command of ninja shows, such as NVCC_APPEND_FLAGS.
        seen = self.sandbox.variables if self.sandbox else os.environ
        variables = {name: os.environ.get(name) for name in seen} | self.environ | self._own
        facts = (self.torch.version, self.host, self._plan, self.request.settings, packages)
        return inputs_of(self.source, variables, facts)

    def _install(self, requirements: Collection[str]) -> None:
        """Install build requirements; torch stays at its release."""
        if requirements:
            what = "the build requirements"
            install_beside_torch(self._env, self.torch, self._folder, requirements, what)

    def _python(
        self,
        env: Environment,
        write: Sequence[Path],
        launcher: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
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
        given = [p for p in self._folder.iterdir() if p.name not in (LOCK, LOG, OBJECTS)]
        read = [
            *(*python_folders(), self._base, compiler, compiler.resolve()),
            # The guard of nvcc and the `ninja` of a divided build.
            *(Path(half.__path__[0]) for half in (torchwheel, torchwheel_runtime)),
            *(Path(program).parent for program in launcher),
            # The one that a build without a ninja of its own calls may be off the PATH.
            Path(ninja.BIN_DIR, "ninja"),
            *(path for path in (self._plan.toolkit,) if path),
        ]
        # Beside the Python: the folder of the program that builds goes onto the PATH.
        script = env.python.with_name("sandboxed-python")
        more = {**objects.variables, **ENDLESS} if objects else {}
        return self.sandbox.write_program(
            script,
            env.python,
            read=read,
            write=write,
            given=given,
            launcher=launcher,
            more=more,
            own=variables,
        )


def compiler_cache(request: SdistRequest, cache: Path) -> CompilerCache:
    """The compiler cache that is named, or one that a project has for itself.

    What the sandbox writes to a cache could be read by another project's build.
    """
    own = cache / "build" / f"sccache-{request.cache_key()}"
    return request.cache or folder_cache(own, _OWN_CACHE_SIZE)


@contextlib.contextmanager
def confine(
    request: SdistRequest,
    cache: Path,
    progress: Progress,
    work: Work = "",
    shard: Shard = _WHOLE,
) -> Iterator[ConfinedBuild]:
    """Prepare a build in its folder, which is its own for the block; see `ConfinedBuild`."""
    named, place = {}, "the compiler cache"
    if request.cache:
        named, place = dict(request.cache.variables), f"--cache {request.cache.text}"
    with hold_build_folder(request.build_folder(cache), progress) as folder:
        made = ConfinedBuild(request, folder, cache, progress, work, shard)
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
        progress.say(f"no sandbox: {request.name} runs with your rights: {found}")
    return None
