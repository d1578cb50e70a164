"""The kernels with compilers other than CI's main one: they know less, or other words.

Whole wheels of one GPU architecture: compiled, linked, held against the gates, tried.
"""

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.containers

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, "-m", "torchwheel", "wheels", "--container"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("variant", "arch", "image"),
    [
        ("cu124-stable", "6.0", "cuda-12.4"),  # the oldest GPU
        ("rocm7.2-stable", "gfx90a", "rocm-7.2"),  # wavefronts of 64
        ("rocm7.2-stable", "gfx1201", "rocm-7.2"),  # wavefronts of 32
    ],
)
def test_a_wheel_for_one_architecture(torchwheel, image_of, tmp_path, variant, arch, image):
    image_of(image)
    torchwheel("--archs", arch, "--dist", tmp_path, variant, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    # A function of a newer C library would show here.
    assert re.search(r"^fusedops-.*-manylinux(2014|_2_17)_x86_64", wheel.name), wheel.name
