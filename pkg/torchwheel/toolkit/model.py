"""What a toolkit is once it is there."""

import dataclasses
import os
from pathlib import Path

from platformdirs import user_cache_path


@dataclasses.dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit in a folder, verified; `release` is nvcc's own, e.g. "13.0.88"."""

    backend: str
    version: str
    root: Path
    release: str
    identity: str
    """Changes when any byte that matters to a build may have changed."""

    @property
    def nvcc(self) -> Path:
        """The compiler driver."""
        return self.root / "bin" / "nvcc"


def cache_folder() -> Path:
    """The cache: TORCHWHEEL_CACHE, else the user's cache folder; private to the user."""
    named = os.environ.get("TORCHWHEEL_CACHE")
    folder = Path(named) if named else user_cache_path("torchwheel")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder.resolve()
