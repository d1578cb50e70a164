"""Builds and tries a variant in its image, or by emulation; cibuildwheel owns the container."""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from torchwheel import programs
from torchwheel.image.engine import LABEL, Engine, Volume, volume_options
from torchwheel.image.images import BuiltImage, ensure_image, platform_option
from torchwheel.image.recipes import Image, emulated_image, python_of
from torchwheel.image.registry import registry_of
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant, python_tag
from torchwheel.pipeline import inside, own_build
from torchwheel.pipeline.build_records import BuiltWheel
from torchwheel.pipeline.cibuildwheel import (
    FRONTEND,
    cibuildwheel_settings,
    identifier_of,
    settings_toml,
    tests_of,
)
from torchwheel.pipeline.container_options import (
    BUNDLED,
    COPIED_BUNDLE,
    KERNELS,
    OUTPUT,
    OWN,
    PROJECT,
    TORCHWHEEL,
    VARIANT,
    ContainerOptions,
    build_paths,
    options_of,
    plan_of,
)
from torchwheel.pipeline.frontend import compile_step, failure_reason
from torchwheel.pipeline.inputs import NATIVE, Clock, Run, claims_of
from torchwheel.pipeline.inside import read_cache_use, read_usage
from torchwheel.pipeline.kernel_artifacts import carry, check_taken, compiled_objects
from torchwheel.pipeline.materials import materials_of
from torchwheel.pipeline.sources import is_plain_file, stage
from torchwheel.smoke import probe_source, results
from torchwheel.smoke.results import read_probe, record_from_files
from torchwheel.smoke.smoke_record import SmokeRecord, dump_smoke
from torchwheel.smoke.testing import arguments_of_tests, digest_of_tests
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime import process
from torchwheel_runtime.builder.extension import OBJECTS
from torchwheel_runtime.builder.ninja import read_progress
from torchwheel_runtime.builder.variables import SHARD
from torchwheel_runtime.errors import TorchwheelError, program_error
from torchwheel_runtime.files import temporary_variables, write_text
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import escape
from torchwheel_runtime.variant_format import split_name

_LOG = "build.log"
"""Of a build, in the variant's folder. The container can write there, so each run removes it first:
what an earlier build left could be a link.
"""


_PLACES = own_build.PLACES
_FRONTEND = " ".join(FRONTEND)
# Its argument: the tag of the Python.
_COMPILE = f"""
set -e
export PATH=/opt/python/$1-$1/bin:$PATH
python -m torchwheel.pipeline.inside account start
python -m build --wheel {_FRONTEND} --outdir /tmp/wheel {PROJECT}
python -m torchwheel.pipeline.inside account build
"""
# Its arguments: the tag of the Python, the project's folder, and the settings of the build backend.
_COMPILE_OWN = f"""
set -e
export PATH={_PLACES.ninja.parent}:/opt/python/$1-$1/bin:$PATH
export PATH=$PATH:{_PLACES.toolkit_home}/bin:{_PLACES.environment}/bin
cd "$2"
shift 2
python -m torchwheel.pipeline.inside account start
python -m torchwheel.pipeline.inside prepare "$PWD"
python -m build . --wheel {_FRONTEND} --outdir /tmp/wheel "$@"
python -m torchwheel.pipeline.inside account build
"""


@dataclasses.dataclass(frozen=True)
class Container:
    """Builds a native variant in its image, and tries its wheel there if it is for this machine."""

    run: Run
    variant: Variant
    engine: Engine
    image: BuiltImage

    @property
    def place(self) -> str:
        """The reference of the image."""
        return self.image.reference

    @property
    def facts(self) -> Sequence[str]:
        """What names the image."""
        return ["image", self.image.digest]

    @property
    def compiler(self) -> Sequence[str]:
        """What names the part of the image that compilers see."""
        return ["image", self.image.compilers]

    def build(self, out: Path, clock: Clock, *, tests: bool = True) -> BuiltWheel:
        """Build and, with `tests`, try the variant; its finished wheel lies below `out`."""
        folder = self.run.variant_folder(self.variant)
        with clock.step("container"):
            wheel, smoke = self._run_cibuildwheel(folder, out, tests=tests)
        return BuiltWheel(wheel, smoke, *read_usage(folder), read_cache_use(folder))

    def smoke(self, built: BuiltWheel, clock: Clock) -> SmokeRecord | None:
        """The record of the tests that the build ran; of another machine's wheel by emulation."""
        smoke, run = built.smoke, self.run
        if smoke is None:
            with clock.step("emulated"):
                smoke = smoke_emulated(run, self.variant, self.engine, built.wheel)
        if smoke:
            report = run.dist / "smoke" / f"{self.variant.id}.json"
            write_text(report, dump_smoke(smoke))
            if smoke.sources:  # else it was imported alone
                junit = run.variant_folder(self.variant) / inside.JUNIT
                write_text(report.with_suffix(".xml"), results.read_report(junit))
        return smoke

    def _run_cibuildwheel(
        self, folder: Path, out: Path, *, tests: bool
    ) -> tuple[Path, SmokeRecord | None]:
        run, variant = self.run, self.variant
        written = (inside.PROBE, inside.JUNIT, inside.CACHE_USE)
        for name in (*written, *map(inside.usage_file, inside.STEPS)):
            (folder / name).unlink(missing_ok=True)
        write_text(folder / inside.CLAIMS, claims_file.dumps(claims_of(variant)))
        cxx = build_paths(variant).cxx or "g++"
        materials = dataclasses.asdict(materials_of(run, variant, cxx, self.image))
        write_text(folder / inside.MATERIALS, json.dumps(materials, indent=1) + "\n")
        project, config, wheels = out / "project", out / "cibuildwheel.toml", out / "wheels"
        options = self._prepare(folder, project)
        linked = run.linked.get(variant.id, ()) if variant.ordinary else ()
        steps = folder / inside.DIVIDED
        if linked:
            carry(linked, KERNELS, steps)
        tried = tests_of(run, variant) if tests else None
        # cibuildwheel unpacks the project into a folder and sets its time, which takes the
        # folder's owner. Who that is in an image was decided when it was made, so the folder comes
        # from here.
        own = tuple(
            (str(out / "container" / inside_.lstrip("/")), inside_, "rw")
            for inside_ in (PROJECT, OUTPUT)
        )
        options = dataclasses.replace(options, volumes=(*options.volumes, *own))
        _give_volumes(self.engine, options.volumes)
        bundle = _copied_bundle(self.engine, out / "container")
        options = dataclasses.replace(options, volumes=(*options.volumes, bundle))
        settings = cibuildwheel_settings(run, variant, self.engine, self.image, options, tried)
        write_text(config, settings_toml(settings))
        # In GitHub Actions cibuildwheel would print commands for the runner.
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CIBW_") and name != "GITHUB_ACTIONS"
        }
        command = [*process.python_module(sys.executable, "cibuildwheel")]
        command += ["--only", identifier_of(run, variant)]
        command += ["--config-file", str(config), "--output-dir", str(wheels), str(run.below)]
        environ["PYTHONUNBUFFERED"] = "1"
        status = self._stream(command, folder, self._show_step, environ, project)
        _check_written(folder, wheels)
        finished = sorted(wheels.glob("*.whl"))
        if status or len(finished) != 1:
            raise program_error(f"{_reason(folder, status)} (all of it in {folder / _LOG})")
        (wheel,) = finished
        if linked:
            check_taken(linked, steps)
        return wheel, None if tried is None else _smoke_record(run, wheel, folder, status, tried)

    def compile_shard(self, shard: Shard, out: Path) -> Path:
        """Compile a shard of what the variants of a toolkit share; the folder of the objects."""
        run, variant, engine = self.run, self.variant, self.engine
        folder, project = run.variant_folder(variant), out / "project"
        options = self._prepare(folder, project, shard)
        # The tests' packages are not needed, and their folder may be missing.
        used = [volume for volume in options.volumes if volume[1] != BUNDLED]
        volumes = (*used, (str(project), PROJECT, "rw"))
        for path in (project, *project.rglob("*")):
            engine.give(path)
        _give_volumes(engine, options.volumes)
        settings = run.matrix.own_build.config_settings if variant.ordinary else {}
        environment = {**options.environment, SHARD: str(shard), "PYTHONUNBUFFERED": "1"}
        if variant.ordinary:
            del environment["PATH"]  # the script sets it: cibuildwheel alone knows $PATH
        command = [
            *(engine.name, "run", "--rm", f"--label={LABEL}={run.id}", *volume_options(volumes)),
            *engine.user_options(),
            *(f"--env={name}" for name in options.forwarded),
            *(f"--env={name}={value}" for name, value in environment.items()),
            *(self.image.reference, "bash", "-c", _COMPILE_OWN if variant.ordinary else _COMPILE),
            *("compile", python_tag(python_of(run.matrix, variant)), f"{PROJECT}/{run.below}"),
            *(f"--config-setting={name}={value}" for name, value in settings.items()),
        ]
        status = self._stream(command, folder, lambda _: None, os.environ)
        _check_written(folder)
        if status:
            reason = failure_reason(folder / _LOG, "the container ended with an error")
            raise program_error(f"{reason} (all of it in {folder / _LOG})")
        if variant.ordinary:
            return compiled_objects(run.matrix.project.name, folder / inside.DIVIDED)
        return folder / NATIVE / OBJECTS

    def _prepare(self, folder: Path, project: Path, shard: Shard | None = None) -> ContainerOptions:
        """Copy the project, write down the plan of an ordinary one; the options of its container.

        Args:
            folder: the variant's folder.
            project: the folder for the copy.
            shard: the part that is compiled; None for the whole wheel.
        """
        run, variant = self.run, self.variant
        (folder / _LOG).unlink(missing_ok=True)
        if variant.ordinary:
            plan = own_build.dump_plan(plan_of(run, variant, shard))
            write_text(folder / inside.PLAN, plan)
            steps = folder / inside.DIVIDED
            shutil.rmtree(steps, ignore_errors=True)
            steps.mkdir()
            self.engine.give(steps)
        stage(run.source, project, tree=run.tree)
        return options_of(run, variant, self.engine, self.image)

    def _show_step(self, line: str) -> None:
        text = line.strip()
        step = compile_step(text) if self.variant.ordinary else None
        if step := step or read_progress(line):
            self.run.progress.step(*step)
        elif text.endswith("..."):
            self.run.progress.step(text.removesuffix("..."))

    def _stream(
        self,
        command: Sequence[str],
        folder: Path,
        say: Callable[[str], None],
        environ: Mapping[str, str],
        cwd: Path | None = None,
    ) -> int:
        """Run a command that builds in a container, and end it if it is silent and idle for long.

        Its output goes to the log in the variant's folder. The container itself is removed at the
        end of the run.
        """
        log = folder / _LOG
        try:
            with log.open("w", encoding="utf-8") as log_file:
                return programs.stream(
                    command,
                    say,
                    log=log_file,
                    cwd=cwd,
                    env={**environ, **temporary_variables(), **self.engine.environ},
                    silence=programs.SILENCE,
                    cpu_seconds=lambda: self.engine.cpu_seconds(self.run.id),
                )
        except process.TimedOutError as error:
            raise TorchwheelError(f"the build {error.reason} (all of it in {log})") from error


def _check_written(*folders: Path) -> None:
    """Refuse links, pipes and devices in folders that a container wrote to.

    What is read there lies on this machine: behind a link it would be another file of it.
    """
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or is_plain_file(path)):
            raise TorchwheelError(
                f"{escape(str(path))}: expected files and folders alone, found a link or a pipe "
                "that the build left; remove it"
            )


def _give_volumes(engine: Engine, volumes: Iterable[tuple[str, str, str]]) -> None:
    """Make the folders that a container writes to, and its user their owner."""
    for host, _, mode in volumes:
        if mode == "rw":
            Path(host).mkdir(parents=True, exist_ok=True)
            engine.give(Path(host))


def _copied_bundle(engine: Engine, folder: Path) -> Volume:
    """The file in `/` that cibuildwheel 4.3.5 copies the certificates to.

    Only the owner of `/` could make it there, and the user of a container is another.
    """
    file = folder / Path(COPIED_BUNDLE).name
    file.touch()
    engine.give(file)
    return (str(file), COPIED_BUNDLE, "rw")


def _smoke_record(
    run: Run, wheel: Path, folder: Path, status: int, tests: str | None
) -> SmokeRecord:
    sources, report = "", None
    if tests and (suite := run.trial.tests):
        sources = digest_of_tests(suite)
        report = folder / inside.JUNIT
    return record_from_files(wheel, run.bundled, folder / inside.PROBE, report, sources, status)


def _reason(folder: Path, status: int) -> str:
    """The first import or test that failed; if none did, the line of the log with the error."""
    with contextlib.suppress(OSError, TorchwheelError):
        for package in read_probe(folder / inside.PROBE).imported:
            if package.error:
                return f"smoke: import {package.name}: {package.error}"
    with contextlib.suppress(OSError, UnicodeDecodeError, TorchwheelError):
        for test in results.parse_junit(results.read_report(folder / inside.JUNIT)):
            if test.outcome == "failed":
                return f"smoke: {test.name}: {test.reason}"
    return failure_reason(folder / _LOG, f"cibuildwheel ended with status {status}")


_HANDLERS = Path("/proc/sys/fs/binfmt_misc")
_HANDLER = {"linux_aarch64": "qemu-aarch64", "linux_x86_64": "qemu-x86_64"}
# Its arguments: those of Python. The wheels' requirements beside torch are missing here: the import
# must work without them.
_SCRIPT = f"""
set -e
python3 -m pip install --quiet --no-deps --no-index --target /tmp/site /wheels/*.whl
export PYTHONPATH=/tmp/site:{TORCHWHEEL}
cp -r /smoke /tmp/tests
cd /tmp
exec python3 "$@"
"""


def emulation(matrix: Matrix, variant: Variant, root: Path) -> Image | None:
    """The image that tries a wheel of another machine; None without tests or an emulator here."""
    if matrix.smoke.tests is None or not (_HANDLERS / _HANDLER[variant.platform]).exists():
        return None
    return emulated_image(matrix, variant, root)


def smoke_emulated(run: Run, variant: Variant, engine: Engine, wheel: Path) -> SmokeRecord | None:
    """Run the smoke tests by emulation; returns their record, None without an emulator."""
    image, tests = emulation(run.matrix, variant, run.root), run.matrix.smoke.tests
    if image is None or tests is None:
        return None
    registry = registry_of(run.matrix, run.root)
    built = ensure_image(engine, image, run.cache, run.progress, registry)
    folder = run.variant_folder(variant)
    engine.give(folder)  # nothing was built in a container for a universal wheel
    volumes = (
        *OWN,
        *(
            (str(path), f"/wheels/{split_name(path.name)[0]}", "ro")
            for path in (wheel, *run.bundled)
        ),
        (str((run.root / tests).resolve()), "/smoke", "ro"),
        (str(folder), VARIANT, "rw"),
    )
    names = (run.matrix.project.name, *(path.name.split("-")[0] for path in run.bundled))
    command = ["run", "--rm", f"--label={LABEL}={run.id}", *platform_option(image.machine)]
    command += [*engine.user_options(), *volume_options(volumes)]
    command += [built.reference, "bash", "-c", _SCRIPT, "smoke", "-c", probe_source(), "--of"]
    command += [f"--facts={inside.VARIANT / inside.PROBE}"]
    command += arguments_of_tests(
        inside.VARIANT / inside.JUNIT, "tests", run.matrix.smoke.without_gpu
    )
    command += names
    log = folder / "emulated.log"
    log.unlink(missing_ok=True)
    status = 0 if engine.succeeds(command, log) else 1
    _check_written(folder)
    return _smoke_record(run, wheel, folder, status, tests)
