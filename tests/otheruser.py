"""Files of another user, and work that another user does."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534


def give_away(path: Path) -> None:
    """Make a file or folder another user's."""
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def as_nobody(work: Callable[[], object]) -> None:
    """Do `work` in a child that is another user, with an open umask; it must not fail."""
    if os.geteuid():
        pytest.skip("only root can become another user")

    def child() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.umask(0)
        work()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
