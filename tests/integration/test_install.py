"""What a user installs: fusedops and the torchwheel it needs, from the index by a real pip."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from torchwheel.index.serve import serve_in_background
from torchwheel.inspect.sdist import unpack
from torchwheel.inspect.wheel import open_wheel
from torchwheel.smoke import trial_environment
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.inspect.elf import read_library, versions_needed

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
USE = """
import torch, fusedops
status = fusedops.status()
assert status.native, status.reason
x, bias = torch.randn(5, 7), torch.randn(7)
expected = torch.nn.functional.gelu(x + bias, approximate="tanh")
torch.testing.assert_close(fusedops.bias_gelu(x, bias), expected)
print(fusedops.__version__, torch.__version__)
"""


@pytest.fixture
def dist(torchwheel, tmp_path):
    """An output folder with the universal wheel of this tree.

    `FUSEDOPS_DIST` names a folder that `nox -s wheels -- --archs '8.0;9.0+PTX'` has filled. There
    is nothing to build there unless the tree has changed since.
    """
    named = os.environ.get("FUSEDOPS_DIST")
    folder, archs = (Path(named), "8.0;9.0+PTX") if named else (tmp_path / "dist", "9.0")
    done = torchwheel("wheels", "universal", "--archs", archs, "--dist", folder, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def newest_libstdcxx(wheel):
    """The newest release of libstdc++'s symbols that a library of the wheel needs, as numbers."""
    with open_wheel(wheel) as opened, opened.extract() as files:
        needed = [
            tuple(map(int, found.removeprefix("GLIBCXX_").split(".")))
            for path in files.values()
            for versions in versions_needed(read_library(path)).values()
            for found in versions
            if found.startswith("GLIBCXX_")
        ]
    return max(needed, default=(3, 4))


def test_pip_installs_fusedops_from_the_served_index_and_it_runs(dist, tmp_path, cache):
    (universal,) = dist.glob("fusedops-*-py3-none-manylinux*.whl")
    # With the compiler's own headers too: manylinux_2_17 has the symbols of GCC 4.8.
    assert newest_libstdcxx(universal) <= (3, 4, 19)
    # Beside the torch of the suite's smoke tests, which is there already.
    base = trial_environment.base_environment(cache, ("pytest", "torch==2.13.0"), Quiet())
    installed = trial_environment.layered_environment(base, tmp_path / "venv")
    python = installed.python
    heard: list[str] = []
    with serve_in_background(dist / "index", heard.append) as address:
        index = f"{address}/cu130/torch2.13"
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
            + ["--index-url", index, "fusedops"],
            check=True,
        )
    assert any(".whl.metadata" in line for line in heard)
    (bundled,) = (dist / "bundled").glob("torchwheel_runtime-*.whl")
    assert any(f"/files/{bundled.name} " in line for line in heard)
    # Outside the tree and without its PYTHONPATH: only what pip installed.
    call = [python, "-c", USE]
    done = subprocess.run(
        call, cwd=tmp_path, env=installed.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1.0.0 2.13.0")
    # It brings the run-time half, and nothing that builds wheels.
    assert not python.with_name("torchwheel").exists()
    assert not [*tmp_path.glob("venv/lib/python*/site-packages/torchwheel/")]


def pip_wheel(source: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        + ["--wheel-dir", str(out), str(source)],
        check=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.mark.parametrize("half", ["torchwheel", "torchwheel_runtime"])
def test_our_own_wheels_hold_every_file_they_read(wheel_of, half):
    wheel = wheel_of(f"pkg/{half}")
    folder = wheel.parent / "source" / "src"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    needed = {name for name in files if ".egg-info/" not in name}
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in held if ".dist-info/" not in name} == needed


def test_the_source_distribution_of_fusedops_builds_by_itself(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path)]
        + [str(ROOT)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (sdist,) = tmp_path.glob("fusedops-*.tar.gz")
    source = unpack(sdist, tmp_path / "unpacked")
    assert (source / "csrc" / "kernels" / "vector.cuh").exists()
    wheel = pip_wheel(source, tmp_path / "out")
    assert wheel.name == "fusedops-1.0.0-py3-none-any.whl"
