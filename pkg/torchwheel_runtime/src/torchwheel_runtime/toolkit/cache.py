"""The cache's folder, and folders in it that one process makes and all use.

Standard library only: a first call on a GPU asks for the folder.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import make_folder_atomically, remove_leftovers
from torchwheel_runtime.lock import hold_lock, say_waiting
from torchwheel_runtime.ownership import (
    check_tree,
    let_others_read,
    no_folder,
    trusted_folder,
    trusted_path,
)

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
    folder = trusted_folder(cache_path())
    if folder not in _USED:
        # A cache of root's is only read, and root does not remove it then.
        with contextlib.suppress(OSError):
            _USED[folder] = os.open(folder / _IN_USE, _OPEN, 0o600)
            fcntl.flock(_USED[folder], fcntl.LOCK_SH)
    return folder


_USED: dict[Path, int] = {}
"""The caches that this process uses, and the locks that say so, until it ends."""
_IN_USE = ".in-use"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def hold_alone(folder: Path) -> Iterator[bool]:
    """Whether no other process uses the cache `folder`; one that wants to waits for the block."""
    try:
        handle = os.open(trusted_path(folder) / _IN_USE, _OPEN, 0o600)
    except FileNotFoundError:  # there is no cache
        yield True
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(handle)


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
    with contextlib.suppress(OSError):  # root's
        os.utime(root)  # its last use


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
