"""What a user installs: fusedops and the torchwheel it needs, from the index by a real pip."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from torchwheel.index.serve import serve_in_background
from torchwheel.inspect.sdist import unpack
from torchwheel.inspect.wheel import open_wheel
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


def test_pip_installs_fusedops_from_the_served_index_and_it_runs(dist, tmp_path):
    (universal,) = dist.glob("fusedops-*-py3-none-manylinux*.whl")
    # With the compiler's own headers too: manylinux_2_17 has the symbols of GCC 4.8.
    assert newest_libstdcxx(universal) <= (3, 4, 19)
    # A pip from 23.2 on, which alone asks for the metadata.
    subprocess.run([sys.executable, "-m", "venv", "--upgrade-deps", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    heard: list[str] = []
    with serve_in_background(dist / "index", heard.append) as address:
        index = f"{address}/cu130/torch2.13"
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-compile", "--extra-index-url", index]
            + ["fusedops", "torch==2.13.0"],
            check=True,
        )
    assert any(".whl.metadata" in line for line in heard)
    (bundled,) = (dist / "bundled").glob("torchwheel_runtime-*.whl")
    assert any(f"/files/{bundled.name} " in line for line in heard)
    # Outside the tree and without its PYTHONPATH: only what pip installed.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        call = list(map(str, command))
        return subprocess.run(
            call, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    done = run(python, "-c", USE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1.0.0 2.13.0")
    # It brings the run-time half, and nothing that builds wheels.
    assert not python.with_name("torchwheel").exists()
    assert not [*tmp_path.glob("venv/lib/python*/site-packages/torchwheel/")]


NOT_PACKAGED = {"LICENSE", "pyproject.toml"}


def pip_wheel(source: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        + ["--wheel-dir", str(out), str(source)],
        check=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.mark.parametrize("half", ["torchwheel", "torchwheel_runtime"])
def test_our_own_wheels_hold_every_file_they_read(tmp_path, half):
    # A copy: setuptools leaves a build folder where it works.
    skipped = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    folder = shutil.copytree(ROOT / "pkg" / half, tmp_path / half, ignore=skipped)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    needed = {f"{half}/{name}" for name in files - NOT_PACKAGED}
    held = set(zipfile.ZipFile(pip_wheel(folder, tmp_path / "out")).namelist())
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
