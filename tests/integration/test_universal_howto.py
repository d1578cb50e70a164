"""docs/universal.md, followed to the letter: an existing extension gets a universal wheel."""

import re
import shutil
import subprocess
import textwrap
import zipfile
from pathlib import Path

import pytest

from torchwheel_runtime.console import Quiet
from torchwheel_runtime.toolkit.headers import torch_headers

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
EXISTING = Path(__file__).parent / "existing"


def steps() -> dict[str, str]:
    """The files of the how-to, each by the path that the text before it names last."""
    text = (ROOT / "docs" / "universal.md").read_text(encoding="utf-8")
    section = re.search(r"^## Bring an existing.*?\n(.*?)^## ", text, re.M | re.S)[1]
    pieces = re.split(r"^( *)```[a-z]+\n(.*?)^ *```$", section, flags=re.M | re.S)
    files = {}
    for prose, _, block in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=False):
        if paths := re.findall(r"`((?:axpy/[\w/]+|\w+)\.(?:h|cu|cpp|py|toml|yaml))`", prose):
            files[paths[-1]] = textwrap.dedent(block)
    return files


def test_the_extension_is_one_of_torchs_stable_abi(nvcc, cache, tmp_path):
    """As it is before the first step."""
    torch = torch_headers("2.11", cache, Quiet()) / "torch" / "include"
    source = EXISTING / "axpy" / "csrc" / "axpy.cu"
    subprocess.run(
        [nvcc, "-std=c++17", "-arch=sm_90", "-DUSE_CUDA", "-c", source, "-o", tmp_path / "axpy.o"]
        + ["-DTORCH_TARGET_VERSION=0x020b000000000000", "-isystem", torch],
        check=True,
    )


@pytest.mark.nightly
def test_it_gets_a_universal_wheel_that_passes_its_tests(torchwheel, links, tmp_path):
    project = Path(shutil.copytree(EXISTING, tmp_path / "axpy"))
    files = steps()
    assert set(files) == {
        *("axpy/csrc/axpy.h", "axpy/csrc/axpy.cu", "axpy/csrc/axpy.cpp"),
        *("axpy/__init__.py", "axpy/extension.py"),
        *("setup.py", "pyproject.toml", "matrix.yaml"),
    }
    for path, content in files.items():
        (project / path).write_text(content, encoding="utf-8")
    done = torchwheel("wheels", "universal", "--archs", "9.0", cwd=project, PIP_FIND_LINKS=links)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed, not run on a GPU" in done.stdout
    (wheel,) = (project / "dist").glob("axpy-0.3-py3-none-manylinux_*.whl")
    libraries = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    assert libraries == {"axpy/_lib/kernels/cu130.so", "axpy/_lib/front_end/stable.so"}
