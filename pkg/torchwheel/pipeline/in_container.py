"""Builds and tries a variant in its image, or by emulation; cibuildwheel owns the container."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from torchwheel import claims as claims_file
from torchwheel.builder.ninja import is_progress
from torchwheel.errors import TorchwheelError, program_error
from torchwheel.files import write_text
from torchwheel.image.build import Built, ensure, for_machine
from torchwheel.image.engine import LABEL, Engine, volume_options
from torchwheel.image.recipes import emulated_image
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import cibuildwheel as cibw
from torchwheel.pipeline import inside
from torchwheel.pipeline.cibuildwheel import KEPT, OWN, TORCHWHEEL, options_of, torch_of
from torchwheel.pipeline.frontend import failure_reason
from torchwheel.pipeline.run import Run, claims_of
from torchwheel.pipeline.sources import stage
from torchwheel.smoke import results
from torchwheel.smoke.record import SmokeRecord
from torchwheel.smoke.results import pytest_arguments, record_from_files, select_tests

# The image's build user.
_USER = 1000


def build_in_container(
    run: Run, variant: Variant, engine: Engine, image: Built, out: Path, *, tried: bool = True
) -> tuple[Path, SmokeRecord | None]:
    """The finished wheel of `variant`, below `out`, and how its tests went in the container.

    There is no record if it is not to be `tried`, or is for another machine than this one.
    """
    kept = run.kept(variant)
    for name in (inside.PROBE, inside.JUNIT, *map(inside.usage_file, inside.STEPS)):
        (kept / name).unlink(missing_ok=True)
    write_text(kept / inside.CLAIMS, claims_file.dumps(claims_of(variant)))
    options = options_of(run, variant, engine.name, image, torch_of(run, variant))
    if not tried:
        options = dataclasses.replace(options, tests=None)
    for host, _, mode in options.volumes:
        if mode == "rw":
            _writable(Path(host))
    project = out / "project"
    stage(run.source, project)
    config = out / "cibuildwheel.toml"
    write_text(config, cibw.options_toml(options))
    wheels = out / "wheels"
    log = kept / "build.log"
    status = _cibuildwheel(run, variant, engine, options, project, config, wheels, log)
    found = sorted(wheels.glob("*.whl"))
    if status or len(found) != 1:
        raise program_error(f"{_why(kept, log, status)} (all of it in {log})")
    if options.tests is None:
        return found[0], None
    record = record_from_files(
        found[0], run.bundled, kept / inside.PROBE, kept / inside.JUNIT, status
    )
    return found[0], record


def _why(kept: Path, log: Path, status: int) -> str:
    """The first test that failed, if it came to that, else the line of the log that says why."""
    with contextlib.suppress(OSError, TorchwheelError):
        for test in results.parse_junit((kept / inside.JUNIT).read_text(encoding="utf-8")):
            if test.outcome == "failed":
                return f"smoke: {test.name}: {test.reason}"
    return failure_reason(log, f"cibuildwheel ended with status {status}")


def _writable(folder: Path) -> None:
    """The build user of the image must be able to write there; of others' folders only root can."""
    if os.geteuid() == 0:
        os.chown(folder, _USER, _USER)


def _cibuildwheel(
    run: Run,
    variant: Variant,
    engine: Engine,
    options: cibw.Options,
    project: Path,
    config: Path,
    wheels: Path,
    log: Path,
) -> int:
    if importlib.util.find_spec("cibuildwheel") is None:
        raise TorchwheelError(
            "cibuildwheel is not installed here: `pip install cibuildwheel` (Python 3.11 or later)"
        )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CIBW_")}
    command = [sys.executable, "-m", "cibuildwheel", "--only", options.identifier]
    command += ["--config-file", str(config), "--output-dir", str(wheels)]
    with (
        log.open("w", encoding="utf-8") as written,
        subprocess.Popen(
            command,
            cwd=project,
            env={**kept, **engine.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        for line in process.stdout or ():
            written.write(line)
            text = line.strip()
            if is_progress(line) or text.endswith("..."):
                run.progress.step(f"{variant.id}: {text}")
    return process.returncode


def read_usage(kept: Path) -> tuple[dict[str, float], int | None]:
    """CPU seconds of each step of the last container, and the most memory up to the build's end."""
    seconds: dict[str, float] = {}
    before, peak = 0.0, None
    for step in inside.STEPS:
        try:
            found = json.loads((kept / inside.usage_file(step)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if found["cpu_seconds"] is not None:
            seconds[step] = round(found["cpu_seconds"] - before, 3)
            before = found["cpu_seconds"]
        if step == "build":
            peak = found["peak_bytes"]
    return seconds, peak


_HANDLERS = Path("/proc/sys/fs/binfmt_misc")
_HANDLER = {"linux_aarch64": "qemu-aarch64", "linux_x86_64": "qemu-x86_64"}
# Names of the distributions; what Python runs the tests with. What the wheels require beside
# torch is not there: the import of an extension must do without.
_SCRIPT = f"""
set -e
python3 -m pip install --quiet --no-deps --no-index --target /tmp/site /wheels/*.whl
export PYTHONPATH=/tmp/site:{TORCHWHEEL}
cp -r /smoke /tmp/tests
cd /tmp
read -ra names <<< "$1"
python3 {TORCHWHEEL}/torchwheel/smoke/probe.py --of "${{names[@]}}" > {KEPT}/{inside.PROBE}
shift
exec python3 "$@"
"""


def try_emulated(run: Run, variant: Variant, engine: Engine, wheel: Path) -> SmokeRecord | None:
    """The record of the smoke tests under emulation; None where that cannot be had here."""
    wanted = emulated_image(run.matrix, variant, run.root)
    if wanted is None or not (_HANDLERS / _HANDLER[variant.platform]).exists():
        return None
    image = ensure(engine, wanted, run.cache, run.progress)
    run.progress.step(f"{variant.id}: trying it by emulation")
    kept = run.kept(variant)
    volumes = (
        OWN,
        *((str(path), f"/wheels/{path.name}", "ro") for path in (wheel, *run.bundled)),
        (str((run.root / run.matrix.smoke.tests).resolve()), "/smoke", "ro"),
        (str(kept), KEPT, "rw"),
    )
    names = (run.matrix.project.name, *(path.name.split("-")[0] for path in run.bundled))
    command = ["run", "--rm", f"--label={LABEL}={run.id}", *for_machine(wanted.machine)]
    command += volume_options(volumes)
    command += [image.reference, "bash", "-c", _SCRIPT, "smoke", " ".join(names)]
    tests = select_tests("tests", run.matrix.smoke.without_gpu)
    command += pytest_arguments(inside.KEPT / inside.JUNIT, *tests)
    log = kept / "emulated.log"
    status = 0 if engine.succeeds(command, log) else 1
    return record_from_files(wheel, run.bundled, kept / inside.PROBE, kept / inside.JUNIT, status)
