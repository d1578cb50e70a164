"""Every ROCm of this machine that can compile, the preferred one first."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchwheel.machine.model import FoundToolkit
from torchwheel.machine.tool import is_file, real, text_of
from torchwheel.machine.torch_model import Absent
from torchwheel.machine.versions import of_hip

USUAL = Path("/opt/rocm")


def rocm_toolkits(environ: Mapping[str, str] = os.environ) -> Iterator[FoundToolkit]:
    """Find them one after another, each folder once. Files are read, nothing is started."""
    seen: set[Path] = set()
    for root, where in _roots(environ):
        resolved = real(root)
        if resolved not in seen:
            seen.add(resolved)
            yield _found(resolved, where)


def _roots(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environ.get("ROCM_PATH"):
        yield Path(environ["ROCM_PATH"]), "ROCM_PATH"
    if hipcc := shutil.which("hipcc", path=environ.get("PATH", os.defpath)):
        root = real(Path(hipcc)).parent.parent
        # AMD's packages once had it in /opt/rocm/hip/bin.
        yield root.parent if root.name == "hip" else root, "hipcc on the PATH"
    if is_file(USUAL / "bin" / "hipcc"):
        yield USUAL, str(USUAL)


def _found(root: Path, where: str) -> FoundToolkit:
    header = root / "include" / "hip" / "hip_version.h"
    text = text_of(header)
    release = "" if isinstance(text, Absent) else of_hip(text) or ""
    problem = None
    if not is_file(root / "bin" / "hipcc"):
        problem = "it has no bin/hipcc"
    elif not release:
        problem = text.reason if isinstance(text, Absent) else f"{header} tells no release"
    fix = "set ROCM_PATH to a ROCm with hipcc and HIP's headers" if problem else None
    return FoundToolkit("rocm", root, release, where, problem, fix)
