"""Imports what a wheel installs, in the environment it is tried in."""

import importlib.resources
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from torchwheel.errors import TorchwheelError, program_error
from torchwheel.inspect.wheel import Wheel
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.record import Imported, MachineRecord
from torchwheel.smoke.results import read_probe

SECONDS = 3600


def importable(wheel: Wheel) -> tuple[str, ...]:
    """Names that the wheel's users import: top folders with an __init__.py, and top modules."""
    paths = [PurePosixPath(member) for member in wheel.members]
    packages = {p.parts[0] for p in paths if len(p.parts) == 2 and p.name == "__init__.py"}
    modules = {
        p.name.partition(".")[0] for p in paths if len(p.parts) == 1 and p.suffix in (".py", ".so")
    }
    if not packages | modules:
        raise TorchwheelError(f"{wheel.path.name}: no package or module to import in it")
    return tuple(sorted(packages | modules))


def imports(
    env: Environment, names: Sequence[str], cwd: Path
) -> tuple[MachineRecord, tuple[Imported, ...]]:
    """The machine as torch sees it, and how the import of each name went, after torch's."""
    source = importlib.resources.files("torchwheel.smoke").joinpath("probe.py").read_text()
    done = run(env, ["-c", source, *names], cwd)
    try:
        return read_probe(done.stdout, env.site)
    except (ValueError, LookupError, TypeError) as error:
        said = " ".join(done.stderr.split()[-40:]) or "nothing was said"
        raise program_error(
            f"importing torch and {', '.join(names)} ended with status {done.returncode}: {said}"
        ) from error


def run(env: Environment, arguments: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python; what it does there is its own affair, also when it fails."""
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
