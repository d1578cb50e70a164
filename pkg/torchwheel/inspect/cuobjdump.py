"""Where cuobjdump is, and one run of it."""

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torchwheel.errors import TorchwheelError

VARIABLE = "TORCHWHEEL_CUOBJDUMP"
PACKAGE = "nvidia-cuda-cuobjdump"
NO_CODE = "does not contain device code"
SECONDS = 300


def find(explicit: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The cuobjdump to use: given > $TORCHWHEEL_CUOBJDUMP > PATH > CUDA_HOME > PyPI package."""
    named = explicit or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            raise TorchwheelError(f"cuobjdump expected at {named}, where there is no file")
        return named
    if on_path := shutil.which("cuobjdump", path=environ.get("PATH", os.defpath)):
        return Path(on_path)
    if home := environ.get("CUDA_HOME"):
        candidate = Path(home) / "bin" / "cuobjdump"
        if candidate.is_file():
            return candidate
    if packaged := _packaged():
        return packaged
    raise TorchwheelError(
        f"no cuobjdump, which lists the GPU code of a library: install {PACKAGE} from PyPI, "
        f"or set {VARIABLE} to its path"
    )


def _packaged() -> Path | None:
    """Its wheel puts the program at nvidia/cu13/bin/cuobjdump in site-packages."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == "cuobjdump")
    return next((path for path in paths if path.is_file()), None)


def symbols(program: Path, library: Path) -> str:
    """What `cuobjdump -symbols` prints of a library; an empty text if it holds no device code."""
    try:
        done = subprocess.run(
            [program, "-symbols", library],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TorchwheelError(f"{program} cannot be run: {error}") from error
    if done.returncode == 0:
        return done.stdout
    if NO_CODE in done.stderr and not done.stdout.strip():
        return ""
    said = " ".join((done.stderr or done.stdout).split())
    raise TorchwheelError(f"{program} failed on {library.name}: {said or done.returncode}")
