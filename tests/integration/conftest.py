import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchwheel_runtime.console import Quiet
from torchwheel_runtime.lock import hold_lock
from torchwheel_runtime.toolkit import provision
from torchwheel_runtime.toolkit.cache import cache_folder

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def cache():
    """The user's own cache: it is named by content, and a toolkit need not travel twice."""
    return cache_folder()


@pytest.fixture(scope="session")
def nvcc(cache):
    """A real compiler on every machine: the provisioned one."""
    return provision.provision_pypi("13.0", "linux_x86_64", cache, Quiet())[0] / "bin" / "nvcc"


@pytest.fixture
def tiny(tmp_path):
    """A copy of the small extension, in a folder of its own."""
    return Path(shutil.copytree(HERE / "tiny", tmp_path / "tiny"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Makes a folder of a name once for all workers of pytest; tests only read it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def folder_of(name: str, make: Callable[[Path], None]) -> Path:
        folder, complete = base / name, base / f"{name}.complete"
        with hold_lock(base / f"{name}.lock", lambda: None):
            if not complete.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                complete.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def wheel_of(made_once):
    """Builds the wheel of a folder of this tree, once, of the copy `source` that lies beside it."""

    def wheel_of(place: str) -> Path:
        def make(folder: Path) -> None:
            # setuptools leaves a build folder where it works, and other tests read the tree.
            skipped = (".git", ".nox", "build", "dist", "*.egg-info", "__pycache__")
            ignore = shutil.ignore_patterns(*skipped)
            source = shutil.copytree(ROOT / place, folder / "source", ignore=ignore)
            subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
                + ["--no-build-isolation", "--wheel-dir", str(folder), str(source)],
                # Equal bytes, one smoke environment.
                env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
                check=True,
            )

        (wheel,) = made_once(f"wheel-of-{Path(ROOT, place).name}", make).glob("*.whl")
        return wheel

    return wheel_of


@pytest.fixture(scope="session")
def own_wheel(wheel_of):
    """The run-time half's wheel, of the sources of this tree."""
    return wheel_of("pkg/torchwheel_runtime")


@pytest.fixture(scope="session")
def links(own_wheel):
    """Folders where pip finds the run-time half's wheel, among them one that has it."""
    return f"{own_wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}".strip()


@pytest.fixture
def torchwheel(cache):
    """Runs the command line as a user does; returns the finished process.

    It must end with `status`, unless that is None.
    """

    def run(
        *arguments: object,
        cwd: Path,
        seconds: float = 600,
        status: int | None = None,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "torchwheel", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "TORCHWHEEL_CACHE": str(cache), "COLUMNS": "80", **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done

    return run


collect_ignore = ["tiny", "ordinary", "existing", "many", "cmake"]
