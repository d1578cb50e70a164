"""The cache: where it is, and folders in it that are made once, whoever asks first."""

import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from torchwheel.console import Progress, waiting
from torchwheel.files import folder_aside, sweep


def cache_folder() -> Path:
    """The cache: TORCHWHEEL_CACHE, else the user's cache folder; private to the user."""
    named = os.environ.get("TORCHWHEEL_CACHE")
    folder = Path(named) if named else user_cache_path("torchwheel")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder.resolve()


def made_once(
    root: Path, make: Callable[[Path], None], progress: Progress, *, doing: str, busy: str
) -> None:
    """Have `make` fill `root` if it is not there; of processes that ask at once, one makes it.

    Args:
        root: the folder; whole or absent.
        make: fills the folder it is given, which then takes the place of `root`.
        progress: where to say what is being done.
        doing: what is said while it is made.
        busy: what is said while another process makes it.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    if root.exists():
        return
    lock = FileLock(root.parent / f"{root.name}.lock")
    with waiting(lock, busy, progress):
        if not root.exists():
            sweep(root.parent, root.name)
            progress.step(doing)
            with folder_aside(root) as aside:
                make(aside)
