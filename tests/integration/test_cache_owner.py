"""What another user puts into the cache is never run, and a cache that root made is only read."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitmaker import Told
from otheruser import NOBODY, as_nobody
from torchwheel.matrix.forms import ProjectSource
from torchwheel.pipeline.container_options import _uv_cache
from torchwheel.pipeline.inputs import Run
from torchwheel.pipeline.sources import download_release
from torchwheel.smoke import trial_environment
from torchwheel.toolkit.provide import _is_trusted
from torchwheel.toolkit.torch_files import torch_file
from torchwheel_runtime.builder import probes
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.toolkits import find_toolkits
from torchwheel_runtime.ownership import UntrustedError
from torchwheel_runtime.toolkit.cache import make_once
from torchwheel_runtime.toolkit.lock import components
from torchwheel_runtime.toolkit.provision import pypi_identity

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PARTS = ("toolkits", "smoke", "torch", "sdists", "containers", "build", "probes", "verified")


@pytest.fixture
def cache(public):
    """A cache that every user can write to."""
    for part in ("cache", *(f"cache/{name}" for name in PARTS)):
        Path(public, part).mkdir()
        Path(public, part).chmod(0o777)
    return public / "cache"


@pytest.fixture
def ran(public):
    """A file that planted programs write to."""
    (public / "ran").touch()
    (public / "ran").chmod(0o666)
    return public / "ran"


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
    for folder in (cache, *cache.iterdir()):
        folder.chmod(0o755)


@pytest.mark.parametrize("later", [None, close])
def test_a_planted_compiler_is_not_run(cache, ran, later, torchwheel):
    plant_toolkit(cache, ran)
    if later:
        later(cache)
    done = torchwheel("toolkit", "cu130", cwd=ROOT)
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
    found = [kit for kit in find_toolkits("cuda", {}, (), cache) if kit.root.is_relative_to(cache)]
    assert ran.read_text() == ""
    assert [kit.release for kit in found] == [""]
    assert all(kit.problem and kit.fix for kit in found)


@pytest.mark.parametrize("later", [None, close])
def test_a_planted_smoke_environment_is_not_used(cache, public, ran, later):
    requires, progress = ("pytest",), Told()
    folder = cache / "smoke" / trial_environment.base_folder_name(requires)

    def plant() -> None:
        site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        site.mkdir(parents=True)
        (site / "planted.pth").write_text(f"import os; os.system('id >> {ran}')\n")
        (folder / trial_environment.COMPLETE).touch()

    as_nobody(plant)
    if later:
        later(cache)

    def use() -> None:
        base = trial_environment.base_environment(cache, requires, progress)
        made = trial_environment.layered_environment(base, public / "venv")
        subprocess.run([made.python, "-c", "pass"], check=True)

    with pytest.raises(UntrustedError):
        use()
    assert ran.read_text() == ""


def read_torch(cache: Path) -> None:
    torch_file("2.11", "3.12", "linux_x86_64", cache, Told())


def read_sdist(cache: Path) -> None:
    pinned = hashlib.sha256(b"planted").hexdigest()
    download_release(ProjectSource("release", "demo", "1.0"), pinned, cache, Told())


def mount_packages(cache: Path) -> None:
    _uv_cache(cache, 0, SimpleNamespace(user=(0, 0)))


def link_objects(cache: Path) -> None:
    matrix = SimpleNamespace(project=SimpleNamespace(name="demo"))
    Run.cached_folder(SimpleNamespace(cache=cache, source=ROOT, matrix=matrix), "objects")


def believe_a_marker(cache: Path) -> None:
    assert _is_trusted(cache / "verified" / "planted")


@pytest.mark.parametrize("later", [None, close])
@pytest.mark.parametrize(
    ("planted", "use"),
    [
        ("torch/torch-2.11-cp3.12-linux_x86_64.json", read_torch),
        ("sdists/demo-1.0/demo-1.0.tar.gz", read_sdist),
        ("containers/uv-0/planted", mount_packages),
        ("build/demo-0/planted", link_objects),
        ("verified/planted", believe_a_marker),
    ],
)
def test_what_is_planted_elsewhere_in_the_cache_is_not_used(planted, use, later, cache):
    def plant() -> None:
        (cache / planted).parent.mkdir(parents=True, exist_ok=True)
        (cache / planted).write_bytes(b"planted")

    as_nobody(plant)
    # Who owns the folder of a part is trusted no more than who owns the file in it.
    os.chown(cache / planted.partition("/")[0], NOBODY if later else 0, -1)
    if later:
        later(cache)
    with pytest.raises(UntrustedError):
        use(cache)


def test_a_planted_answer_of_a_compiler_is_not_believed(cache, monkeypatch):
    target = SimpleNamespace(cxx="/usr/bin/c++", sysroot=None)
    asked: list[object] = []
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(cache))
    monkeypatch.setattr(probes, "_command", lambda *_: ["c++"])
    monkeypatch.setattr(probes, "_compile", lambda *found: bool(asked.append(found)))
    probe = SimpleNamespace(flags=SimpleNamespace(libraries=()), function="")
    close(cache)
    assert probes._holds(probe, target) is False
    (answer,) = (cache / "probes").iterdir()
    answer.unlink()
    (cache / "probes").chmod(0o777)
    as_nobody(lambda: answer.write_text("true"))
    assert probes._holds(probe, target) is False
    assert len(asked) == 2


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
