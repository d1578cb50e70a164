"""The extension modules' entry points, with the kernels of a few families on a modelled GPU."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

torch = pytest.importorskip("torch", reason="torch is not installed")

from emulate import ENTRY_POINTS, build_module, pytest_command, variables  # noqa: E402

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
]
FEW = ("vector_add", "bias_act")
MORE = (*FEW, "gated", "norm")


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("dlpack", FEW),
        pytest.param("dlpack", MORE, marks=pytest.mark.nightly),
        pytest.param("_C", MORE, marks=pytest.mark.nightly),
    ],
    ids=["dlpack", "dlpack of more", "_C"],
)
def test_entry_points_of(name, families, tmp_path):
    if name == "dlpack" and not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no DLPack exchange API")
    library, module = build_module(name, "sm_90", families)
    file = tmp_path / "counts.json"
    chosen = [word for family in families for word in ("--family", family)]
    command = pytest_command(ENTRY_POINTS, (*chosen, f"--counts={file}"))
    given = variables(library, 0, module)
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    counts = json.loads(file.read_text())
    assert counts["passed"] > 20
    assert counts["launches"] > 50
