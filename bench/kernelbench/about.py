"""The machine, the versions and the code that was timed."""

import datetime
import hashlib
import importlib.metadata
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

import fusedops
from kernelbench.peers import pinned


def about(wheel: Path | None, **measured: float) -> dict[str, Any]:
    """What a record says of its run, and `measured` of how it was."""
    one = torch.ones(1, device="cuda")
    fusedops.vector_add(one, one)  # a universal wheel chooses its library at the first call
    library = fusedops.status().library
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name(),
        "driver": _driver(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "fusedops": fusedops.__version__,
        "library": library.name if library else None,
        "library_sha256": _sha256(library),
        "wheel": wheel.name if wheel else None,
        "wheel_sha256": _sha256(wheel),
        "peers": {name: _version(name) for name in ("triton", "transformers", *pinned())},
        **measured,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _sha256(path: Path | None) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else None


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return None
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
