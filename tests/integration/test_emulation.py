"""A family on a modelled GPU, and a few planted faults; `nox -s planted` has the others."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

pytest.importorskip("torch", reason="torch is not installed")

from emulate import QUICK, kernels_of, pytest_command, variables  # noqa: E402
from model_library import BUILD, Library, build  # noqa: E402
from planted import load, verdict  # noqa: E402

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
]
FEW = ("vector-tail", "vector-alignment", "dequantize-tail", "rotary-barrier", "rotary-wait")


@pytest.mark.nightly
def test_a_family_on_wavefronts_of_64(tmp_path):
    library = build(Library("gfx90a", ("dequantize",)))
    file = tmp_path / "counts.json"
    command = pytest_command(QUICK, ("--family", "dequantize", f"--counts={file}"))
    done = subprocess.run(
        command, cwd=ROOT, env=variables(library, 3), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    counts = json.loads(file.read_text())
    assert counts["passed"] > 0
    assert counts["launches"] > 0
    kernels = kernels_of(library)
    assert {kernels[offset] for offset in counts["kernels"]} == set(kernels.values()) != set()
    assert BUILD in library.parents


@pytest.mark.parametrize(
    "name",
    [FEW[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in FEW[1:])],
)
def test_a_planted_fault_is_found(name, tmp_path):
    (fault,) = (one for one in load() if one.name == name)
    build(Library(fault.model, (fault.family,)))
    found, said = verdict(fault, tmp_path)
    assert found, said
