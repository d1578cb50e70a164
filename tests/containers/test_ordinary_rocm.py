"""Somebody else's extension for ROCm: translated by torch's hipify, compiled by hipcc."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from rocm_torch import make
from test_ordinary import PLUS, torchwheel

from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates

pytestmark = pytest.mark.containers
TOOLKIT = "rocm7.2"
VARIANT = f"{TOOLKIT}-torch2.13-cp311"
OURS = Path(__file__).parents[2] / "matrix.yaml"


@pytest.fixture
def gigabytes(tmp_path):
    """A folder that is not kept for later."""
    folder = tmp_path / "gigabytes"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.nightly
@pytest.mark.skipif(
    not torch.__version__.startswith("2.13.") or torch.version.cuda is not None,
    reason="makes a torch for ROCm of a torch 2.13 for CPUs",
)
def test_its_wheel_for_rocm_is_built_and_tried(base, image_of, environ, gigabytes, tmp_path):
    assert base
    image_of("rocm-7.2")
    make(gigabytes, "7.2")
    folder = shutil.copytree(PLUS, tmp_path / "plus")
    matrix = yaml.safe_load((folder / "matrix.yaml").read_text())
    # In the image of our own wheels for ROCm.
    ours = yaml.safe_load(OURS.read_text())["toolkits"][TOOLKIT]
    matrix["toolkits"] = {TOOLKIT: {**ours, "abis": ["ordinary"], "archs": ["gfx90a", "gfx1100"]}}
    matrix["torch"]["2.13"]["toolkits"] = [TOOLKIT]
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    # A cache of its own: the torch that an index has is kept there.
    environ = {
        **environ,
        "TORCHWHEEL_CACHE": str(gigabytes / "cache"),
        "PIP_FIND_LINKS": str(gigabytes),
    }
    torchwheel(folder, environ, "wheels", "--container")
    (wheel,) = (folder / "dist").glob("*.whl")
    assert wheel.name.startswith("plus-1.0+rocm7.2torch2.13-cp311-cp311-manylinux")
    assert all(result.ok for result in run_gates(wheel, Limits(1)))
    record = json.loads((folder / "dist" / ".torchwheel" / f"{VARIANT}.json").read_text())
    assert record["archs"] == ["gfx90a", "gfx1100"]
    assert record["smoke"] == "passed, not run on a GPU"
    assert record["cache"] == {"hits": 0, "misses": 2, "failed": 0}
    smoke = json.loads((folder / "dist" / "smoke" / f"{VARIANT}.json").read_text())
    assert smoke["machine"]["torch"] == "2.13.0+rocm7.2"
    assert not list(Path(folder, "csrc").glob("*.hip")), "the sources stay as they are"
