"""Where a wheel goes that did not pass: kept for a look, where nothing installs it from."""

import shutil
from pathlib import Path


def keep_rejected(wheel: Path, dist: Path) -> Path:
    """Copy a wheel into `dist`/rejected, under a name that pip does not take; returns the copy."""
    rejected = dist / "rejected" / f"{wheel.name}.rejected"
    rejected.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wheel, rejected)
    return rejected
