"""The path of the cache, and folders in it that one process makes and all use.

Standard library only: the import of an extension asks for the path.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel.errors import TorchwheelError
from torchwheel.files import make_folder_atomically, remove_leftovers
from torchwheel.lock import hold_lock, say_waiting

if TYPE_CHECKING:
    from torchwheel.console import Progress


def cache_path() -> Path:
    """TORCHWHEEL_CACHE, else the user's cache folder; it is not created.

    Raises:
        TorchwheelError: this user has no home folder.
    """
    if path := os.environ.get("TORCHWHEEL_CACHE"):
        return Path(path).absolute()
    # By hand: platformdirs, which knows more systems than Linux, costs an import 2 ms.
    users = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not users.is_absolute():
        try:
            users = Path("~/.cache").expanduser()
        except RuntimeError as error:
            raise TorchwheelError(
                f"home folder: expected HOME or an entry of user {os.geteuid()} in the user "
                "database, found neither; set TORCHWHEEL_CACHE to a folder of your own"
            ) from error
    return users / "torchwheel"


def cache_folder() -> Path:
    """The cache's folder, created if it is missing; private to the user."""
    folder = cache_path()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def make_once(
    root: Path, make: Callable[[Path], None], progress: "Progress", *, doing: str, busy: str
) -> None:
    """Let `make` fill the folder `root` if it is missing; of several processes one makes it.

    Args:
        root: the folder; it is complete or absent.
        make: fills the temporary folder it gets, which is then renamed to `root`.
        progress: where to report.
        doing: the step that is shown while it is made.
        busy: the line that is shown while another process makes it.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    if root.exists():
        return
    lock = root.parent / f"{root.name}.lock"
    with hold_lock(lock, say_waiting(progress.say, busy)):
        if not root.exists():
            remove_leftovers(root.parent, root.name)
            progress.step(doing)
            with make_folder_atomically(root) as temporary:
                make(temporary)
