"""What hipify makes of an ordinary CUDA source is HIP to a real compiler."""

import shutil
import sys
from pathlib import Path

import pytest

from torchwheel_runtime.builder.sources import hipify
from torchwheel_runtime.inspect.hip import read_hip_code

pytestmark = pytest.mark.containers

PROJECT = Path(__file__).parents[1] / "unit" / "builder" / "cuda_project"


@pytest.mark.nightly
@pytest.mark.parametrize("release", ["6.4", "7.2"])
def test_the_translation_compiles_for_gfx942(engine, image_of, tmp_path, release):
    image = image_of(f"rocm-{release}")
    out = tmp_path / "out"
    source = Path(shutil.copytree(PROJECT, tmp_path / "project"))
    became = hipify(
        source, ["csrc/scale.cu"], out, python=Path(sys.executable), include_dirs=["include"]
    )
    out.chmod(0o777)  # the image has a user of its own
    compiler = ["hipcc", "-x", "hip", "-std=c++17", "--offload-arch=gfx942", "-shared", "-fPIC"]
    # Before ROCm 7 the warp functions with a mask have to be asked for.
    flags = ["-DHIP_ENABLE_WARP_SYNC_BUILTINS", "-Wall", "-Werror", "-Iinclude"]
    engine.call(
        ["run", "--rm", f"--volume={out}:/project:rw", "--workdir=/project", image]
        + [*compiler, *flags, became["csrc/scale.cu"], "-o", "scale.so"],
        "compiling the translation",
    )
    (code,) = read_hip_code(out / "scale.so")
    assert code.arch.name == "gfx942"
    assert any("scale" in kernel for kernel in code.kernels)
