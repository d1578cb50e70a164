"""The folder of the cache that one call builds in."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.files import no_space_is_one_line
from torchwheel.lock import alone

LOCK, LOG = "lock", "build.log"


@contextlib.contextmanager
def alone_in(folder: Path, progress: Progress) -> Iterator[Path]:
    """Hold a folder that nobody else uses; of what it holds at the end, only the log stays.

    The path is the same each time, so that a compiler cache knows the commands again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    busy = "another run builds the same: waiting for it"
    with alone(folder / LOCK, lambda: progress.say(busy)), no_space_is_one_line(folder):
        _clear(folder)
        try:
            yield folder
        finally:
            _clear(folder)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (LOCK, LOG):
            path.unlink()
