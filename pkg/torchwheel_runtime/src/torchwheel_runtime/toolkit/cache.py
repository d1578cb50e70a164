"""The cache's folder, and folders in it that one process makes and all use.

Standard library only: a first call on a GPU asks for the folder.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import make_folder_atomically, remove_leftovers
from torchwheel_runtime.lock import hold_lock, say_waiting
from torchwheel_runtime.ownership import check_tree, let_others_read, no_folder, trusted_folder

if TYPE_CHECKING:
    from torchwheel_runtime.console import Progress


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
    """The real path of the cache's folder; created if it is missing, private to the user.

    Raises:
        UntrustedError: others can change it.
        TorchwheelError: it cannot be created.
    """
    return trusted_folder(cache_path())


def make_once(
    root: Path, make: Callable[[Path], None], progress: "Progress", *, doing: str, busy: str
) -> None:
    """Let `make` fill the folder `root` if it is missing; of several processes one makes it.

    A cache that root made for all users is only read: what it has is checked and used.

    Args:
        root: the folder; it is complete or absent.
        make: fills the temporary folder it gets, which is then renamed to `root`.
        progress: where to report.
        doing: the step that is shown while it is made.
        busy: the line that is shown while another process makes it.

    Raises:
        UntrustedError: others can change the folder, or could have changed what is in it.
        TorchwheelError: it is missing, and the cache cannot be written.
    """
    trusted_folder(root.parent)
    if not root.exists():
        with hold_folder_lock(root, say_waiting(progress.say, busy)):
            if not root.exists():
                remove_leftovers(root.parent, root.name)
                with progress.task(doing), make_folder_atomically(root) as temporary:
                    make(temporary)
                    let_others_read(temporary)
    check_tree(root)


@contextlib.contextmanager
def hold_folder_lock(root: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a folder of the cache that this process may make.

    Raises:
        TorchwheelError: the cache cannot be written.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(root.with_name(f"{root.name}.lock"), busy))
        except OSError as error:
            raise no_folder(root, error) from error
        yield
