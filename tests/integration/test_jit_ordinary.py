"""An ordinary extension, with torch/extension.h and pybind11, built at its first use."""

import json
import os
from pathlib import Path

import pytest

from checkout import python_path
from programmaker import run_python

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
FILES = {
    "pyproject.toml": "",
    "plain/csrc/twice.cu": """\
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <cuda_runtime.h>
__global__ void twice_kernel(float* x, long n) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) x[i] *= 2;
}
at::Tensor twice(const at::Tensor& x) {
  if (!x.is_cuda()) return at::mul(x, 2);
  at::Tensor y = x.clone();
  twice_kernel<<<(y.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), y.numel());
  return y;
}
""",
    "plain/csrc/module.cpp": """\
#include <torch/extension.h>
at::Tensor twice(const at::Tensor& x);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
""",
    "plain/__init__.py": """\
from pathlib import Path
from torchwheel_runtime.builder import Extension, Module, Operator
from torchwheel_runtime.runtime import load_module

EXTENSION = Extension(
    package="plain",
    sources="plain/csrc",
    operators=(Operator("twice", ("twice.cu",), bindings={"aten": ("module.cpp",)}),),
    module=Module("plain._C"),
    ordinary=True,
)

def twice(x):
    return load_module(EXTENSION, Path(__file__).parent).twice(x)
""",
}
CALL = """
import json, sys
import torch, plain
try:
    found = plain.twice(torch.tensor([1.5])).tolist()
except ImportError as error:
    found = str(error)
module = getattr(sys.modules.get("plain._C"), "__file__", None)
print(json.dumps({"found": found, "module": module}))
"""


@pytest.fixture
def call(nvcc, tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environ = {
        **os.environ,
        "PYTHONPATH": python_path(ROOT, tmp_path),
        "CUDA_HOME": str(nvcc.parents[1]),
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "TORCHWHEEL_CACHE": str(tmp_path / "cache"),
    }

    def run(**more):
        done = run_python(CALL, env={**environ, **more}, cwd="/")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return run


@pytest.mark.nightly
def test_it_is_built_once_and_imported(call, tmp_path):
    # This torch is for CPUs: a library with kernels for GPUs lies idle in it, but loads.
    found, said = call(TORCHWHEEL_IGNORE="backend")
    assert found["found"] == [3.0], found
    assert "TORCHWHEEL_IGNORE lets pass: backend: expected a torch built for CUDA" in said
    assert Path(found["module"]).is_relative_to(tmp_path / "cache" / "jit")
    assert "plain: building it" in said
    again, said = call(TORCHWHEEL_IGNORE="backend")
    assert again == found
    assert "building" not in said


def test_a_torch_without_gpus_is_refused_before_anything_is_compiled(call):
    found, said = call()
    assert "backend: expected a torch built for CUDA" in found["found"]
    assert "building" not in said


def test_where_it_may_not_be_built_the_error_says_so(call):
    found, _ = call(TORCHWHEEL_MODE="prebuilt")
    assert found["found"].startswith("plain._C: prebuilt: none in this installation.")
    assert "`torchwheel doctor plain` says what fixes it" in found["found"]
