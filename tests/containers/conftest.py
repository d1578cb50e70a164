"""Real containers. Where no engine or base image can be had, the tests are skipped and say so."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchwheel.image.engine import Engine, find_engine
from torchwheel.image.recipes import BaseImage
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.toolkit.cache import cache_folder

ROOT = Path(__file__).parents[2]
# Extensions that tests build.
collect_ignore = ["plus", "foreign"]
TINY = ROOT / "tests" / "integration" / "tiny"


@pytest.fixture(scope="session", autouse=True)
def _todays_packages() -> Iterator[None]:
    """A snapshot service is slow, and few machines reach one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHWHEEL_SNAPSHOTS", os.environ.get("TORCHWHEEL_SNAPSHOTS", "none"))
        yield


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder that no run had before.

    The user's own cache knows a project's objects by its folder, and pytest gives the same again.
    """
    return Path(tempfile.mkdtemp(dir=tmp_path))


@pytest.fixture(scope="session")
def engine() -> Engine:
    pytest.importorskip("cibuildwheel", reason="cibuildwheel is not installed (Python 3.11)")
    try:
        return find_engine()
    except TorchwheelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def image_of(engine) -> Callable[[str], str]:
    """The name of a toolkit's image that was made here before: image_of("rocm-7.2")."""
    listed = engine.call(["images", "--format", "{{.Repository}}:{{.Tag}}"], "listing images")

    def found(toolkit: str) -> str:
        images = [image for image in listed.splitlines() if f"torchwheel/{toolkit}-" in image]
        if not images:
            variants = toolkit.replace("-", "").replace("cuda", "cu") + "-*"
            pytest.skip(f"no image {toolkit}: make it with `nox -s images -- '{variants}'`")
        return images[0]

    return found


@pytest.fixture(scope="session")
def base(engine) -> BaseImage:
    """The release the images begin with: made here before, or pulled."""
    found = BaseImage("bullseye")
    local = engine.content_of(found.local) is not None
    name = found.local if local else found.public
    if not local and not engine.succeeds(["pull", "--quiet", name]):
        pytest.skip("no base image and no registry: make it with `nox -s base-images`")
    try:
        engine.call(["run", "--rm", name, "true"], "running a container")
    except TorchwheelError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture(scope="session")
def tiny_in(base) -> Callable[[Path], Path]:
    """Copies the small extension, with the repository's image recipes, into a folder."""

    def copy(folder: Path) -> Path:
        shutil.copytree(TINY, folder)
        shutil.copytree(
            ROOT / "docker",
            folder / "docker",
        )
        with (folder / "matrix.yaml").open("a") as matrix:
            matrix.write('containers: {recipes: docker, base: bullseye, python: "3.11"}\n')
        return folder

    return copy


@pytest.fixture
def tiny(tmp_path, tiny_in) -> Path:
    return tiny_in(tmp_path / "tiny")


@pytest.fixture(scope="module")
def command() -> list[str]:
    return [sys.executable, "-m", "torchwheel", "wheels", "--container", "cu130-stable"]


@pytest.fixture(scope="session")
def environ() -> dict[str, str]:
    # The user's own cache: images and environments are named by content.
    return {**os.environ, "TORCHWHEEL_CACHE": str(cache_folder()), "COLUMNS": "80"}


@pytest.fixture
def torchwheel(command, environ) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Builds the small extension in its container, as a user does; the call ends with `status`."""

    def run(
        *more: object, cwd: Path, status: int = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*command, *map(str, more)],
            cwd=cwd,
            env={**environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run
