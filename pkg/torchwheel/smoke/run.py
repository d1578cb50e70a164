"""One smoke run: environment, probe, tests, record."""

import importlib.resources
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from torchwheel import files
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.smoke import environment, junit
from torchwheel.smoke.assemble import read_probe, record_of
from torchwheel.smoke.record import Imported, Machine, Record, TestResult, dumps

SECONDS = 3600
SAID = 30
"""Lines of pytest's output shown when a run fails."""


def smoke(
    wheel: Path,
    *,
    tests: Path,
    torch: str | None,
    requires: Sequence[str],
    here: bool,
    record: Path,
    junit: Path | None,
    cache: Path,
    progress: Progress,
) -> Record:
    """Install the wheel, run its tests on the installed files, write the record.

    Args:
        wheel: The file to try.
        tests: The extension's folder of smoke tests; a copy of it is run.
        torch: The torch release of the clean environment; none: as the wheel asks for it.
        requires: What the tests need besides torch.
        here: Use the running interpreter and its torch, for a machine that is offline.
        record: Where the JSON record goes.
        junit: Where the JUnit file goes, if anywhere.
        cache: Folder of the cached environments.
        progress: Where to say what is being done.

    Returns:
        The record, as written; look at its `ok`.
    """
    if not tests.is_dir():
        raise UsageError(f"a folder of smoke tests expected at {tests}, which is none")
    facts = read_wheel(wheel)
    packages = _packages(facts)
    with tempfile.TemporaryDirectory(prefix="torchwheel-smoke-") as folder:
        temporary = Path(folder).resolve()
        if here:
            progress.step("smoke: installing the wheel for the running Python")
            env = environment.here(facts, packages, temporary)
        else:
            wanted = environment.pins(facts, torch, requires)
            base = environment.base(cache.resolve(), wanted, progress)
            progress.step("smoke: installing the wheel")
            env = environment.clean(facts, base, temporary)
        cwd = temporary / "run"
        # Out of the tree, so that nothing of it can be imported by being near.
        shutil.copytree(
            tests, cwd / tests.resolve().name, ignore=shutil.ignore_patterns("__pycache__")
        )
        (cwd / "pytest.ini").write_text("[pytest]\n")
        progress.step(f"smoke: importing {', '.join(packages)}")
        machine, imported = _probe(env, packages, cwd)
        progress.step(f"smoke: running {tests.name}")
        results, status = _tests(env, cwd, tests.resolve().name, junit, progress)
    found = record_of(wheel, machine, imported, results, status)
    files.write_text(record, dumps(found))
    return found


def _packages(wheel: Wheel) -> tuple[str, ...]:
    """Names that the wheel's users import: its top folders with an __init__.py."""
    paths = [PurePosixPath(member) for member in wheel.members]
    found = {p.parts[0] for p in paths if len(p.parts) == 2 and p.name == "__init__.py"}
    if not found:
        raise TorchwheelError(f"{wheel.path.name}: no package to import in it")
    return tuple(sorted(found))


def _probe(
    env: environment.Environment, packages: Sequence[str], cwd: Path
) -> tuple[Machine, tuple[Imported, ...]]:
    source = importlib.resources.files("torchwheel.smoke").joinpath("probe.py").read_text()
    done = _run(env, ["-c", source, *packages], cwd)
    try:
        return read_probe(done.stdout, env.site)
    except (ValueError, LookupError, TypeError) as error:
        said = " ".join(done.stderr.split()[-40:]) or "nothing was said"
        raise TorchwheelError(
            f"importing torch and {', '.join(packages)} ended with status {done.returncode}: {said}"
        ) from error


def _tests(
    env: environment.Environment,
    cwd: Path,
    folder: str,
    junit_file: Path | None,
    progress: Progress,
) -> tuple[tuple[TestResult, ...], int]:
    report = cwd / "junit.xml"
    done = _run(env, junit.pytest_arguments(report, folder), cwd)
    if done.returncode != 0:
        for line in (done.stdout + done.stderr).splitlines()[-SAID:]:
            progress.say(line)
    if not report.is_file():
        return (), done.returncode
    text = report.read_text(encoding="utf-8")
    if junit_file is not None:
        files.write_text(junit_file, text)
    return junit.parse(text), done.returncode


def _run(
    env: environment.Environment, arguments: Sequence[str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [env.python, *arguments],
            cwd=cwd,
            env={**env.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TorchwheelError(f"smoke: {error}") from error
