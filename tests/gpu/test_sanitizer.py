"""compute-sanitizer over the smoke tests: kernels stay in bounds, and threads do not race.

Small shapes only: under the tool a kernel takes a hundred times as long. One process at a time, as
each takes the GPU's memory for itself.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SMOKE = Path(__file__).resolve().parents[1] / "smoke"
FOUND = 9  # the tool's exit status for an error that it has seen
# Neither shapes past any small one, nor what runs no kernel, or a graph's, or torch's own.
LEFT_OUT = "not (2_31 or cpu or compiles or graph or gradcheck or large or stream or devices)"
FILES = sorted({file.name for file in SMOKE.glob("test_*.py")} - {"test_large.py", "test_load.py"})
# The tool keeps freed memory, up to 90 GiB for one dtype of test_values: these run in parts.
IN_PARTS = {"test_gradients.py", "test_values.py"}
DTYPES = [f"[{dtype}-" for dtype in ("float32", "float16", "bfloat16", "float64")]
PARTS = [*DTYPES, f"not ({' or '.join(DTYPES)})"]
# Under racecheck a product of 16-bit matrices by NVIDIA's library ends with an error inside the
# tool, in a process without a kernel of ours too (CUDA 13.0, H200). What may call it is left out
# there, and our own kernels for products run by themselves, at sizes that are theirs.
NO_LIBRARY = f"{LEFT_OUT} and not (gemm or linear or vector_matmul or einsum)"
PRODUCTS = """
import fusedops
import torch
torch.manual_seed(0)
for dtype in (torch.float16, torch.bfloat16):
    for inner, cols in ((64, 32), (384, 144), (2048, 1040)):
        weight = torch.randn(cols, inner, device="cuda").to(dtype).t()
        bias = torch.randn(cols, device="cuda").to(dtype)
        numbers = torch.randint(-128, 128, (inner, cols), device="cuda", dtype=torch.int8)
        scale = torch.rand(inner // 64, device="cuda")
        for rows in (1, 8, 16):
            x = torch.randn(rows, inner, device="cuda").to(dtype)
            fusedops.linear_layer(x, weight, bias)
            fusedops.vector_matmul_int8(x, numbers, scale)
            fusedops.vector_matmul_int8(x, numbers.t().contiguous().t(), scale)
torch.cuda.synchronize()
"""
# A kernel with a body of our choice: block of 64 threads, one element of memory.
WRONG = """
import sys
import torch
from torch.cuda import _compile_kernel
source = 'extern "C" __global__ void fusedops_wrong(float* to) {' + sys.argv[1] + "}"
wrong = _compile_kernel(source, "fusedops_wrong")
wrong((1, 1, 1), (64, 1, 1), (torch.zeros(1, device="cuda"),))
torch.cuda.synchronize()
"""
OUTSIDE = "to[(1 << 24) + threadIdx.x] = 1;"
RACE = "__shared__ volatile float all; all = threadIdx.x; to[0] = all;"


@pytest.fixture
def sanitizer():
    """Runs a Python command under a tool; gives its exit status and what it printed."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    found = shutil.which("compute-sanitizer") or shutil.which(home / "bin" / "compute-sanitizer")
    if found is None:
        pytest.skip("no compute-sanitizer on the PATH or in CUDA_HOME")

    def run(tool: str, *python: str) -> tuple[int, str]:
        done = subprocess.run(
            [found, "--tool", tool, "--kernel-name", "kns=fusedops"]
            + ["--error-exitcode", str(FOUND), sys.executable, *python],
            # Every tensor from the driver: torch's allocator hides what lies beside one.
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            cwd=SMOKE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize(("tool", "body"), [("memcheck", OUTSIDE), ("racecheck", RACE)])
def test_the_tool_sees_what_is_wrong(sanitizer, tool, body):
    status, printed = sanitizer(tool, "-c", WRONG, body)
    assert status == FOUND, printed


@pytest.mark.parametrize(
    ("tool", "file", "chosen"),
    [("memcheck", file, LEFT_OUT) for file in FILES]
    + [("racecheck", file, NO_LIBRARY) for file in FILES if file != "test_gemm.py"],
)
def test_the_smoke_tests_are_clean(sanitizer, tool, file, chosen):
    for part in PARTS if file in IN_PARTS else [""]:
        only = f"{chosen} and {part}" if part else chosen
        status, printed = sanitizer(tool, "-m", "pytest", "-x", "-m", "", "-k", only, file)
        assert status == 0, printed[-4000:]


def test_threads_of_our_own_products_do_not_race(sanitizer):
    status, printed = sanitizer("racecheck", "-c", PRODUCTS)
    assert status == 0, printed[-4000:]
