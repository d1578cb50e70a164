"""Imports the packages of a wheel in the environment that it is tried in."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from torchwheel import process
from torchwheel.errors import TorchwheelError, program_error
from torchwheel.inspect.wheel import Wheel
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.record import ImportRecord, MachineRecord
from torchwheel.smoke.results import read_probe

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


def try_imports(
    env: Environment, names: Sequence[str], cwd: Path
) -> tuple[MachineRecord, tuple[ImportRecord, ...]]:
    """The machine as torch sees it, and the import of each name after torch's."""
    source = importlib.resources.files("torchwheel.smoke").joinpath("probe.py").read_text()
    done = run_python(env, ["-c", source, *names], cwd)
    try:
        return read_probe(done.output, env.site)
    except (ValueError, LookupError, TypeError) as error:
        why = done.last_words("nothing was said")
        raise program_error(
            f"importing torch and {', '.join(names)} ended with status {done.status}: {why}"
        ) from error


def run_python(env: Environment, arguments: Sequence[str], cwd: Path) -> process.ProcessResult:
    """Run the environment's Python; the caller judges its exit status."""
    variables = {**env.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return process.run([env.python, *arguments], cwd=cwd, env=variables, timeout=SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"smoke: {error}") from error
