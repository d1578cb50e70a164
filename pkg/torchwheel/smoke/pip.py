"""Runs of pip on another interpreter's environment, each failure as one line."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torchwheel.errors import TorchwheelError, program_error

SECONDS = 3600


def pip_install(python: Path, arguments: Sequence[str], *, offline: bool, what: str) -> None:
    """`pip install` into `python`'s environment; offline, it may use what is there and no index."""
    import pip  # noqa: F401, PLC0415 - where it is missing, this says so in one line

    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", *arguments]
    environ = dict(os.environ)
    if offline:
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PIP_") and name not in ("PYTHONPATH", "PYTHONHOME")
        }
        # A config file could name links that --no-index does not switch off.
        environ["PIP_CONFIG_FILE"] = os.devnull
        command += ["--no-index", "--no-cache-dir"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environ, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TorchwheelError(f"{what}: pip cannot be run: {error}") from error
    if done.returncode != 0:
        raise program_error(f"{what}: {_reason(done.stdout + done.stderr)}")


def _reason(output: str) -> str:
    """Pip's own ERROR lines, without the general advice that surrounds them."""
    errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    lines = errors or output.splitlines()[-1:]
    return "; ".join(line.removeprefix("ERROR: ").strip() for line in lines) or "pip failed"
