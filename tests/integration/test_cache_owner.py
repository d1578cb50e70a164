"""What another user puts into the cache is never run, and a cache that root made is only read."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jitmaker import Told
from torchwheel.errors import TorchwheelError
from torchwheel.machine import probe
from torchwheel.machine.toolkits import cuda_toolkits
from torchwheel.ownership import UntrustedError
from torchwheel.smoke import environment
from torchwheel.toolkit.cache import make_once
from torchwheel.toolkit.lock import components
from torchwheel.toolkit.provide import pypi_identity

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NOBODY = 65534


@pytest.fixture
def public():
    """A folder that every user can enter, with a cache that every user can write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for part in ("cache", "cache/toolkits", "cache/smoke"):
            Path(name, part).mkdir()
            Path(name, part).chmod(0o777)
        yield Path(name)


@pytest.fixture
def cache(public):
    return public / "cache"


@pytest.fixture
def ran(public):
    """A file that planted programs write to."""
    (public / "ran").touch()
    (public / "ran").chmod(0o666)
    return public / "ran"


def as_nobody(work) -> None:
    """Do `work` in a child that is another user."""
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


def plant_toolkit(cache: Path, ran: Path) -> None:
    """Make the folder of a toolkit before root does, with a compiler that says who ran it."""
    platform = probe.platform_tag()
    identity = pypi_identity(components("13.0"), platform)
    nvcc = cache / "toolkits" / f"cuda-13.0-{platform}-{identity}" / "bin" / "nvcc"

    def plant() -> None:
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text(f"#!/bin/sh\nid >> {ran}\necho V13.0.88\n")
        nvcc.chmod(0o755)

    as_nobody(plant)


def close(cache: Path) -> None:
    """The owner notices that the cache was open; what was planted is still there."""
    for folder in (cache, cache / "toolkits", cache / "smoke"):
        folder.chmod(0o755)


@pytest.mark.parametrize("later", [None, close])
def test_a_planted_compiler_is_not_run(cache, ran, later):
    plant_toolkit(cache, ran)
    if later:
        later(cache)
    done = subprocess.run(
        [sys.executable, "-m", "torchwheel.cli", "toolkit", "cu130"],
        cwd=ROOT,
        env={**os.environ, "TORCHWHEEL_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.read_text() == ""
    assert done.returncode == 1
    whose = "belongs to user 65534, you are 0" if later else "others may write to it (mode 0777)"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"torchwheel: {cache}")
    assert whose in line
    assert done.stdout == ""


@pytest.mark.parametrize("later", [None, close])
def test_a_planted_compiler_is_not_found_for_a_jit_build(cache, ran, later):
    plant_toolkit(cache, ran)
    if later:
        later(cache)
    found = [kit for kit in cuda_toolkits({}, (), cache) if kit.root.is_relative_to(cache)]
    assert ran.read_text() == ""
    assert [kit.release for kit in found] == [""]
    assert all(kit.problem and kit.fix for kit in found)


@pytest.mark.parametrize("later", [None, close])
def test_a_planted_smoke_environment_is_not_used(cache, public, ran, later):
    requires, progress = ("pytest",), Told()
    folder = cache / "smoke" / environment.base_folder_name(requires)

    def plant() -> None:
        site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        site.mkdir(parents=True)
        (site / "planted.pth").write_text(f"import os; os.system('id >> {ran}')\n")
        (folder / environment.COMPLETE).touch()

    as_nobody(plant)
    if later:
        later(cache)

    def use() -> None:
        base = environment.base_environment(cache, requires, progress)
        made = environment.layered_environment(base, public / "venv")
        subprocess.run([made.python, "-c", "pass"], check=True)

    with pytest.raises(UntrustedError):
        use()
    assert ran.read_text() == ""


def test_what_is_made_under_an_open_umask_is_closed(cache):
    close(cache)
    before = os.umask(0)
    try:
        root = cache / "toolkits" / "one"
        make_once(root, lambda folder: (folder / "bin").mkdir(), Told(), doing="", busy="")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (root, root / "bin")] == [0o755] * 2


def test_a_cache_that_root_made_is_used_and_only_read(cache):
    close(cache)
    root = cache / "toolkits" / "one"
    make_once(root, lambda folder: (folder / "bin").mkdir(), Told(), doing="", busy="")
    subprocess.run(["chmod", "-R", "go=rX", str(cache)], check=True)
    before = {path: path.stat() for path in cache.rglob("*")}

    def use() -> None:
        make_once(root, lambda _: pytest.fail("made again"), Told(), doing="", busy="")
        for missing in (root.with_name("two"), cache / "torch" / "three"):
            with pytest.raises(TorchwheelError) as error:
                make_once(missing, lambda _: None, Told(), doing="", busy="")
            assert str(error.value).endswith(
                "expected a folder that is complete or can be made, found: Permission denied; "
                "set TORCHWHEEL_CACHE to a folder of your own"
            )

    as_nobody(use)
    assert {path: path.stat() for path in cache.rglob("*")} == before
