"""File systems of few bytes, which only root can mount."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Callable[[str], None]]:
    """Mounts a file system with these options, e.g. "size=4m"; yields what changes them."""
    folder.mkdir()

    def mount(options: str) -> subprocess.CompletedProcess[str]:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def change(options: str) -> None:
        done = mount(f"remount,{options}")
        assert done.returncode == 0, done.stderr

    if mount(options).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield change
    finally:
        subprocess.run(["umount", str(folder)], check=True)
