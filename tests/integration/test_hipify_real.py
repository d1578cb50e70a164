"""torch's hipify on an ordinary CUDA project: the real one, on a copy."""

import shutil
import sys
from pathlib import Path

import pytest

from torchwheel.builder.hipify import hipify
from torchwheel.errors import TorchwheelError

pytestmark = pytest.mark.integration

PYTHON = Path(sys.executable)
PROJECT = Path(__file__).parents[1] / "unit" / "builder" / "cuda_project"


@pytest.fixture
def project(tmp_path):
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_sources_and_their_headers_become_hip_and_the_tree_stays(project, tmp_path):
    before = contents(project)
    out = tmp_path / "out"
    became = hipify(project, ["csrc/scale.cu"], out, python=PYTHON, include_dirs=["include"])
    assert became == {
        "csrc/scale.cu": "csrc/scale.hip",
        "csrc/cuda/tools.cuh": "csrc/hip/tools.cuh",
        "csrc/plain.h": "csrc/plain.h",
        "include/common.h": "include/common_hip.h",
    }
    text = (out / "csrc" / "scale.hip").read_text()
    for name in (
        *("hip/hip_runtime.h", "hip/hip_fp16.h", "hiprand/hiprand_kernel.h"),
        *("hipMalloc(", "hipMemcpyDeviceToDevice", "hipStream_t", "hipGetLastError", "hipFree("),
        *('#include "hip/tools.cuh"', "#include <common_hip.h>", '#include "plain.h"'),
        "hipLaunchKernelGGL(( scale), dim3((n + 255) / 256), dim3(256), 0, stream,",
    ):
        assert name in text
    assert "cuda" not in text.replace("An ordinary CUDA source", "")
    assert "hipError_t" in (out / "include" / "common_hip.h").read_text()
    assert contents(project) == before


def test_a_second_translation_replaces_the_first(project, tmp_path):
    out = tmp_path / "out"
    hipify(project, ["csrc/scale.cu"], out, python=PYTHON, include_dirs=["include"])
    first = contents(out)
    (out / "left.txt").touch()
    hipify(project, ["csrc/scale.cu"], out, python=PYTHON, include_dirs=["include"])
    assert contents(out) == first


def test_a_failure_is_one_line_and_leaves_nothing(project, tmp_path):
    (project / "csrc" / "bad.cu").write_bytes(b"// \xff\xfe\n")
    with pytest.raises(TorchwheelError, match="hipify, which is part of torch, failed") as failed:
        hipify(project, ["csrc/bad.cu"], tmp_path / "out", python=PYTHON)
    assert "UnicodeDecodeError" in str(failed.value)
    assert not (tmp_path / "out").exists()
