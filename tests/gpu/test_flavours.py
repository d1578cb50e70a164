"""Wheels of this torch, stable and aten, of one toolkit and another: the same kernels' bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from carried import BITS, DIST, installed

from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.trial_environment import default_torch


def wheels_of_this_torch() -> list[Path]:
    """The wheels in dist/ that this Python, torch and GPU can run."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    backend = "rocm" if torch.version.hip else "cu"
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    release = torch.__version__.partition("+")[0]
    return [
        wheel
        for wheel in sorted(DIST.glob(f"fusedops-*+{backend}*x86_64.whl"))
        if ("-py3-none-" in wheel.name or f"-{python}-" in wheel.name)
        and default_torch(read_wheel(wheel), release)
    ]


def bits_of(wheel: Path, folder: Path) -> dict[str, str]:
    env = installed(wheel, folder)
    done = subprocess.run(
        [env.python, str(BITS)],
        cwd=folder,
        env=dict(env.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["bits"]


@pytest.mark.gpu
def test_flavours_of_a_toolkit_give_the_same_bits(tmp_path):
    wheels = wheels_of_this_torch()
    flavours = {read_wheel(wheel).claims.abi for wheel in wheels}
    if flavours != {"stable", "aten"}:
        pytest.skip("dist/ has not a stable and an aten wheel for this torch and Python")
    by_toolkit: dict[str, dict[str, dict[str, str]]] = {}
    for number, wheel in enumerate(wheels):
        claims = read_wheel(wheel).claims
        folder = tmp_path / str(number)
        folder.mkdir()
        by_toolkit.setdefault(claims.toolkit, {})[wheel.name] = bits_of(wheel, folder)
    for found in by_toolkit.values():
        first, *rest = found.values()
        assert all(other == first for other in rest), found
