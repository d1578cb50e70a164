"""Imports the packages of a wheel, and runs its tests, in the environment that it is tried in."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from torchwheel import process
from torchwheel.errors import MalformedError, TorchwheelError, program_error
from torchwheel.files import temporary_variables
from torchwheel.inspect.wheel import Wheel
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.results import RunFacts, read_probe

SECONDS = 3600


def import_names(wheel: Wheel) -> tuple[str, ...]:
    """Names that users of the wheel import: top folders with an __init__.py, and top modules."""
    paths = [PurePosixPath(member) for member in wheel.members]
    packages = {p.parts[0] for p in paths if len(p.parts) == 2 and p.name == "__init__.py"}
    modules = {
        p.name.partition(".")[0] for p in paths if len(p.parts) == 1 and p.suffix in (".py", ".so")
    }
    if not packages | modules:
        raise TorchwheelError(f"{wheel.path.name}: no package or module to import in it")
    return tuple(sorted(packages | modules))


def arguments_of_tests(report: Path, tests: str, without_gpu: Sequence[str] | None) -> list[str]:
    """The arguments of probe.py that run the tests in a folder.

    Args:
        report: pytest's JUnit file.
        tests: the folder.
        without_gpu: files of the folder that run if torch finds no GPU; all if empty, none if
            None.
    """
    chosen = (
        ["--gpu-only"] if without_gpu is None else [f"--without-gpu={name}" for name in without_gpu]
    )
    return [f"--tests={tests}", f"--junit={report}", *chosen]


def probe_source() -> str:
    """The text of probe.py, for `python -c`: its folder must not be on the path of the tests."""
    return importlib.resources.files("torchwheel.smoke").joinpath("probe.py").read_text()


def run_probe(
    env: Environment, names: Sequence[str], cwd: Path, tests: Sequence[str] = ()
) -> tuple[RunFacts, process.ProcessResult]:
    """Import torch, then each name, then run tests.

    Args:
        env: the environment.
        names: the packages to import.
        cwd: the current folder of the tests; the facts are left beside it.
        tests: the arguments of `arguments_of_tests`; no test runs without them.

    Returns:
        The machine as torch sees it and the imports, and how the process ended.
    """
    file = cwd.parent / "facts.json"
    done = run_python(env, ["-c", probe_source(), f"--facts={file}", *tests, *names], cwd)
    try:
        facts = read_probe(file, env.site)
    except (OSError, MalformedError) as error:
        why = done.last_words("nothing was said")
        raise program_error(
            f"importing torch and {', '.join(names)} ended with status {done.status}: {why}"
        ) from error
    return facts, done


def run_python(env: Environment, arguments: Sequence[str], cwd: Path) -> process.ProcessResult:
    """Run the environment's Python; the caller judges its exit status."""
    # Beside compilers, torch's threads would spend cores on waiting for each other.
    variables = {"OMP_WAIT_POLICY": "passive", **env.environ, **temporary_variables()}
    variables["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        return process.run([env.python, *arguments], cwd=cwd, env=variables, timeout=SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"smoke: {error}") from error
