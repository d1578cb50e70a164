"""The cache: where it is, and folders in it that are made once, whoever asks first.

Standard library only: the import of an extension asks where the cache is.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel.files import make_folder_atomically, remove_leftovers
from torchwheel.lock import hold_lock, say_waiting

if TYPE_CHECKING:
    from torchwheel.console import Progress


def cache_path() -> Path:
    """Where the cache is: TORCHWHEEL_CACHE, else the user's cache folder. Nothing is made."""
    named = os.environ.get("TORCHWHEEL_CACHE")
    if named:
        return Path(named).resolve()
    # By hand: platformdirs, which knows more systems than Linux, costs an import 2 ms.
    users = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not users.is_absolute():
        users = Path("~/.cache").expanduser()
    return (users / "torchwheel").resolve()


def cache_folder() -> Path:
    """The cache, made if need be; private to the user."""
    folder = cache_path()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def make_once(
    root: Path, make: Callable[[Path], None], progress: "Progress", *, doing: str, busy: str
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
    lock = root.parent / f"{root.name}.lock"
    with hold_lock(lock, say_waiting(progress.say, busy)):
        if not root.exists():
            remove_leftovers(root.parent, root.name)
            progress.step(doing)
            with make_folder_atomically(root) as aside:
                make(aside)
