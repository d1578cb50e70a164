import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchwheel.console import Quiet
from torchwheel.toolkit import provide
from torchwheel.toolkit.cache import cache_folder

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def cache():
    """The user's own cache: it is named by content, and a toolkit need not travel twice."""
    return cache_folder()


@pytest.fixture(scope="session")
def nvcc(cache):
    """A real compiler on every machine: the provisioned one."""
    return provide.provision_pypi("13.0", "linux_x86_64", cache, Quiet())[0] / "bin" / "nvcc"


@pytest.fixture
def tiny(tmp_path):
    """A copy of the small extension, in a folder of its own."""
    return Path(shutil.copytree(HERE / "tiny", tmp_path / "tiny"))


@pytest.fixture
def torchwheel(cache):
    """Runs the command line as a user does; returns the finished process."""

    def run(
        *arguments: object, cwd: Path, seconds: float = 600, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "torchwheel.cli", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "TORCHWHEEL_CACHE": str(cache), "COLUMNS": "80", **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    return run


collect_ignore = ["tiny", "ordinary"]
