"""A CUDA toolkit that is already on the machine."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchwheel.errors import TorchwheelError

_USUAL = Path("/usr/local/cuda")


def locate(environ: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """The toolkit's folder and identity: CUDA_HOME, else nvcc on the PATH, else the usual place."""
    for where, root in (
        ("CUDA_HOME", Path(environ["CUDA_HOME"]) if environ.get("CUDA_HOME") else None),
        ("nvcc on the PATH", _from_path(environ)),
        (str(_USUAL), _USUAL),
    ):
        if root is None:
            continue
        nvcc = root / "bin" / "nvcc"
        if nvcc.is_file():
            return root.resolve(), _identity(nvcc)
        if where == "CUDA_HOME":
            raise TorchwheelError(f"CUDA_HOME={root}: has no bin/nvcc; point it at a CUDA toolkit")
    raise TorchwheelError(
        f"no CUDA toolkit here (no CUDA_HOME, no nvcc on the PATH, no {_USUAL}/bin/nvcc): "
        "set CUDA_HOME, or use `source: pypi` in matrix.yaml"
    )


def _from_path(environ: Mapping[str, str]) -> Path | None:
    found = shutil.which("nvcc", path=environ.get("PATH"))
    return Path(found).resolve().parent.parent if found else None


def _identity(nvcc: Path) -> str:
    stat = nvcc.stat()
    return hashlib.sha256(
        f"{nvcc.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()
    ).hexdigest()[:16]
