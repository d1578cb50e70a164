"""What is installed on macOS, Windows and musl, and the pure wheel there: it is plain PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import python_path

pytestmark = pytest.mark.integration

# What a Python of these platforms lacks. torch is imported before, as it is for this one.
USE = """
import os, sys
import torch

class Without:
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

MODULES = sys.argv[2].split()
for name in MODULES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Without())
for name in sys.argv[3].split():
    delattr(os, name)
sys.platform = sys.argv[1]
import fusedops
x = torch.ones(2, 3)
print(fusedops.bias_add(x, x[0]).sum().item(), {o.way for o in fusedops.status().operators})
"""
POSIX = "getuid geteuid killpg O_NOFOLLOW O_DIRECTORY sched_getaffinity uname RTLD_LAZY"


@pytest.mark.parametrize(
    ("platform", "modules", "functions"),
    [("win32", "fcntl pwd grp resource termios", POSIX), ("darwin", "", "sched_getaffinity")],
)
def test_it_runs_there(platform: str, modules: str, functions: str) -> None:
    call = [sys.executable, "-c", USE, platform, modules, functions]
    env = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=env)
    assert done.stdout == "12.0 {'fallback'}\n", done.stderr
    assert done.stderr == ""


NIGHTLY = ("musllinux_1_2_x86_64", "musllinux_1_2_aarch64", "manylinux2014_aarch64")
PLATFORMS = (
    *("macosx_11_0_arm64", "win_amd64", "manylinux2014_x86_64"),
    *(pytest.param(platform, marks=pytest.mark.nightly) for platform in NIGHTLY),
)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_pip_resolves_the_base(own_wheel: Path, platform: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
        + ["--target", str(tmp_path), "--only-binary=:all:", "--platform", platform]
        + ["--python-version", "3.10", str(own_wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {item["metadata"]["name"] for item in json.loads(done.stdout)["install"]}
    # What builds wheels comes with the extra. Where it is needed, a line says so.
    assert names == {"torchwheel-runtime", "packaging"}
