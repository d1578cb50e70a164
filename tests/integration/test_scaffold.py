"""A new extension, as `torchwheel new` writes it, built and tried with no further edit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def links(tmp_path_factory):
    """Where pip finds torchwheel: a folder with its wheel."""
    folder = tmp_path_factory.mktemp("links")
    # A copy: setuptools leaves a build folder where it works, and other tests read the tree.
    skipped = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    source = shutil.copytree(ROOT / "pkg" / "torchwheel", folder / "source", ignore=skipped)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        + ["--wheel-dir", str(folder), str(source)],
        check=True,
    )
    return f"{folder} {os.environ.get('PIP_FIND_LINKS', '')}".strip()


def test_a_new_extension_builds_is_tried_and_indexed(torchwheel, links, tmp_path):
    made = torchwheel("new", "my-kernels", "--folder", tmp_path, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[0] == f"{tmp_path / 'my-kernels'}: written. Next:"
    folder = tmp_path / "my-kernels"
    done = torchwheel("wheels", "--archs", "9.0", cwd=folder, PIP_FIND_LINKS=links)
    assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name.split("-")[0] for path in (folder / "dist").glob("*.whl"))
    assert names == ["my_kernels", "my_kernels"]
    assert (folder / "dist" / "index" / "cu130" / "my-kernels" / "index.html").is_file()
    again = torchwheel("wheels", "--archs", "9.0", cwd=folder, PIP_FIND_LINKS=links)
    assert "nothing to do" in again.stderr
    assembled = torchwheel("assemble", "--selection", "cu130-stable", "dist", cwd=folder)
    # The matrix says seven archs, this wheel has one: a release takes what the matrix says.
    assert "made from another matrix: archs is 9.0" in assembled.stderr
