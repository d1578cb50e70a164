"""`pip install .` where there is neither CUDA nor torch: the ABI flavour alone compiles."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchwheel_runtime.inspect.cuda import find_cuobjdump
from torchwheel_runtime.inspect.hip import read_gpu_code
from torchwheel_runtime.inspect.window import CpuTime

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The packages of an empty environment, and its Python."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (found,) = folder.glob("lib/python3*/site-packages")
    return found, folder / "bin" / "python"


def install(python: Path, project: Path, links: str, cache: Path, **variables: str):
    """`pip install` as somebody calls it who has a C++ compiler and nothing else."""
    keep = ("HOME", "LANG", "TMPDIR", "PIP_", "SSL_", "http", "HTTP", "no_proxy", "NO_PROXY")
    env = {name: text for name, text in os.environ.items() if name.startswith(keep)}
    env |= {"PATH": "/usr/bin:/bin", "PIP_FIND_LINKS": links, "TORCHWHEEL_CACHE": str(cache)}
    return subprocess.run(
        [str(python), "-m", "pip", "install", "--verbose", "--no-deps", str(project)],
        env={**env, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.nightly
def test_the_abi_flavour_alone_compiles(site, tiny, links, cache):
    packages, python = site
    project = tiny / "pyproject.toml"
    text = project.read_text()
    project.write_text(
        text.replace('["setuptools>=77"]', '["setuptools>=77", "torchwheel-runtime"]')
    )
    done = install(python, tiny, links, cache, TORCHWHEEL_ABI="stable")
    assert done.returncode == 0, done.stdout + done.stderr
    library = packages / "tiny" / "_lib" / "stable.so"
    modules = read_gpu_code(library, find_cuobjdump, CpuTime())
    assert {str(code.arch) for code in modules} == {"7.5", "8.0", "9.0", "10.0", "11.0", "12.0"}
    assert "(no GPU here)" in done.stdout + done.stderr
    flags = json.loads(library.with_name("stable.so.flags.json").read_text())
    assert "cuda: --use_fast_math" in flags
    # A torch for CPUs has what it needs, and registers its kernel.
    use = (
        "import sys, torch; torch.library.define('tiny::scale', '(Tensor x, float f) -> Tensor')\n"
        "torch.ops.load_library(sys.argv[1])\n"
        "print(torch._C._dispatch_has_kernel_for_dispatch_key('tiny::scale', 'CUDA'))"
    )
    command = [sys.executable, "-c", use, str(library)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False)
    assert loaded.stdout == "True\n", loaded.stderr
