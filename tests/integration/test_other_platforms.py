"""The pure wheel on macOS and Windows: it is imported, and its operators are plain PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
PACKAGES = Path(__file__).parents[2] / "pkg"
POSIX = "getuid geteuid killpg O_NOFOLLOW O_DIRECTORY sched_getaffinity uname RTLD_LAZY"


@pytest.mark.parametrize(
    ("platform", "modules", "functions"),
    [("win32", "fcntl pwd grp resource termios", POSIX), ("darwin", "", "sched_getaffinity")],
)
def test_it_runs_there(platform: str, modules: str, functions: str) -> None:
    call = [sys.executable, "-c", USE, platform, modules, functions]
    env = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=env)
    assert done.stdout == "12.0 {'fallback'}\n", done.stderr
    assert done.stderr == ""
