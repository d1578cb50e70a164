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
from torchwheel.smoke.importing import arguments_of_tests, import_names, run_probe
from torchwheel.smoke.interpreter import Interpreter
from torchwheel.smoke.record import SmokeRecord, TestResult, dump_smoke
from torchwheel.smoke.results import parse_junit, read_report, record_of
from torchwheel.smoke.suite import digest_of_tests

OUTPUT_LINES = 30
"""Lines of pytest's output that are shown when a run fails."""


def smoke(
    wheel: Path,
    *,
    tests: Path | None,
    torch: str | None,
    requires: Sequence[str],
    bundled: Sequence[Path],
    here: bool,
    record: Path,
    junit: Path | None,
    cache: Path,
    progress: Progress,
    without_gpu: Sequence[str] | None = (),
    python: Interpreter | None = None,
    imports: Sequence[str] = (),
    locks: Path | None = None,
) -> SmokeRecord:
    """Install a wheel and its bundled packages, run its tests on them, write the record.

    Args:
        wheel: The file to try.
        tests: The extension's folder of smoke tests; a copy of it is run. None to import the
            packages alone.
        torch: The torch release of the clean environment; None for one that the wheel requires.
        requires: Requirements of the tests besides torch.
        bundled: Wheels that are published with it and installed with it.
        here: Use the running interpreter and its torch, for a machine that is offline.
        record: File for the JSON record.
        junit: File for pytest's JUnit report, if wanted.
        cache: Folder of the cached environments.
        progress: Where to report.
        without_gpu: Test files that run if torch finds no GPU; all if empty, none if None.
        python: The Python of the clean environment; the running one if not given.
        imports: Names to import in place of the wheel's packages.
        locks: Folder of the locks whose files, by hash, the clean environment has; None to install
            what an index gives for the requirements.

    Returns:
        The record; its `ok` is the verdict.
    """
    if tests is not None and not tests.is_dir():
        raise UsageError(f"a folder of smoke tests expected at {tests}, which is none")
    wheels = [read_wheel(path) for path in (wheel, *bundled)]
    packages = [name for installed in wheels[1:] for name in import_names(installed)]
    packages = [*(imports or import_names(wheels[0])), *packages]
    with tempfile.TemporaryDirectory(prefix="torchwheel-smoke-") as folder:
        temporary = Path(folder).resolve()
        if here:
            progress.step("smoke: installing the wheel for the running Python")
            env = environment.running_environment(wheels, import_names(wheels[0]), temporary)
        else:
            required = environment.base_requirements(wheels, torch, requires, python)
            base = environment.base_environment(
                cache.resolve(), required, progress, python, locks=locks
            )
            progress.step("smoke: installing the wheel")
            env = environment.clean_environment(wheels, base, temporary, python)
        cwd = temporary / "run"
        sources, report, arguments = "", cwd / "junit.xml", []
        cwd.mkdir()
        (cwd / "pytest.ini").write_text("[pytest]\n")
        if tests is not None:
            sources, name = digest_of_tests(tests), tests.resolve().name
            # They run outside the source tree, so that they cannot import from it.
            shutil.copytree(tests, cwd / name, ignore=shutil.ignore_patterns("__pycache__"))
            arguments = arguments_of_tests(report, name, without_gpu)
        ran = f", running {tests.name}" if tests else ""
        progress.step(f"smoke: importing {', '.join(packages)}{ran}")
        facts, done = run_probe(env, packages, cwd, arguments)
        if done.status:
            for line in (done.output + done.errors).splitlines()[-OUTPUT_LINES:]:
                progress.say(line)
        if without_gpu is None and facts.machine.gpu is None:
            sources = ""  # imported alone
        results = _read_report(report, junit)
    smoke_record = record_of(wheel, bundled, facts, results, sources, done.status)
    files.write_text(record, dump_smoke(smoke_record))
    return smoke_record


def _read_report(report: Path, junit: Path | None) -> tuple[TestResult, ...]:
    """The results that pytest left, if it did; its file is copied to `junit`."""
    if not report.is_file():
        return ()
    text = read_report(report)
    if junit is not None:
        files.write_text(junit, text)
    return parse_junit(text)
