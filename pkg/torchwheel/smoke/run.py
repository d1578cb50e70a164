"""One smoke run: environment, probe, tests, record."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel import files
from torchwheel.console import Progress
from torchwheel.errors import UsageError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke import environment
from torchwheel.smoke.importing import importable, imports, run
from torchwheel.smoke.record import SmokeRecord, TestResult, dump_smoke
from torchwheel.smoke.results import parse_junit, pytest_arguments, record_of, select_tests

SAID = 30
"""Lines of pytest's output shown when a run fails."""


def smoke(
    wheel: Path,
    *,
    tests: Path,
    torch: str | None,
    requires: Sequence[str],
    bundled: Sequence[Path],
    here: bool,
    record: Path,
    junit: Path | None,
    cache: Path,
    progress: Progress,
    without_gpu: Sequence[str] = (),
) -> SmokeRecord:
    """Install a wheel and its bundled packages, run its tests on them, write the record.

    Args:
        wheel: The file to try.
        tests: The extension's folder of smoke tests; a copy of it is run.
        torch: The torch release of the clean environment; none: as the wheel asks for it.
        requires: What the tests need besides torch.
        bundled: Wheels that are published with it and installed with it.
        here: Use the running interpreter and its torch, for a machine that is offline.
        record: Where the JSON record goes.
        junit: Where the JUnit file goes, if anywhere.
        cache: Folder of the cached environments.
        progress: Where to say what is being done.
        without_gpu: Files of the folder that are run where torch finds no GPU; none: all.

    Returns:
        The record, as written; look at its `ok`.
    """
    if not tests.is_dir():
        raise UsageError(f"a folder of smoke tests expected at {tests}, which is none")
    wheels = [read_wheel(path) for path in (wheel, *bundled)]
    packages = [name for one in wheels for name in importable(one)]
    with tempfile.TemporaryDirectory(prefix="torchwheel-smoke-") as folder:
        temporary = Path(folder).resolve()
        if here:
            progress.step("smoke: installing the wheel for the running Python")
            env = environment.here(wheels, importable(wheels[0]), temporary)
        else:
            wanted = environment.pins(wheels, torch, requires)
            base = environment.base(cache.resolve(), wanted, progress)
            progress.step("smoke: installing the wheel")
            env = environment.clean(wheels, base, temporary)
        cwd = temporary / "run"
        # Out of the tree, so that nothing of it can be imported by being near.
        shutil.copytree(
            tests, cwd / tests.resolve().name, ignore=shutil.ignore_patterns("__pycache__")
        )
        (cwd / "pytest.ini").write_text("[pytest]\n")
        progress.step(f"smoke: importing {', '.join(packages)}")
        machine, imported = imports(env, packages, cwd)
        progress.step(f"smoke: running {tests.name}")
        names = select_tests(tests.resolve().name, () if machine.gpu else without_gpu)
        results, status = _tests(env, cwd, names, junit, progress)
    found = record_of(wheel, bundled, machine, imported, results, status)
    files.write_text(record, dump_smoke(found))
    return found


def _tests(
    env: environment.Environment,
    cwd: Path,
    names: Sequence[str],
    junit_file: Path | None,
    progress: Progress,
) -> tuple[tuple[TestResult, ...], int]:
    report = cwd / "junit.xml"
    done = run(env, pytest_arguments(report, *names), cwd)
    if done.status:
        for line in (done.output + done.errors).splitlines()[-SAID:]:
            progress.say(line)
    if not report.is_file():
        return (), done.status
    text = report.read_text(encoding="utf-8")
    if junit_file is not None:
        files.write_text(junit_file, text)
    return parse_junit(text), done.status
