"""The relation between archs and GPUs, tried: code for every arch of nvcc, loaded on this GPU."""

import dataclasses
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.arch.model import Arch, CudaArch, gencode
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.arch.runs import runs_on

pytestmark = pytest.mark.gpu
NO_BINARY, INVALID_PTX, UNSUPPORTED_PTX = 209, 218, 222
LOAD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, module = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for path in sys.argv[1:]:
    print(cuda.cuModuleLoad(ctypes.byref(module), path.encode()))
"""


def compiled(nvcc: str, folder: Path, arch: Arch) -> str:
    source = folder / "kernel.cu"
    target = folder / f"{arch}.fatbin"
    command = [nvcc, "-fatbin", *gencode(arch), str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return str(target)


def test_this_gpu_runs_what_it_is_said_to_run(tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on the PATH")
    seen = visible_gpus("cuda")
    if not seen.gpus:
        pytest.skip(f"no NVIDIA GPU: {seen.why}")
    release = re.search(
        r"release (\d+\.\d+)",
        subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout,
    )
    assert release is not None
    (tmp_path / "kernel.cu").write_text("__global__ void kernel(float* x) { *x = 1; }\n")
    plain = [a for a in ToolkitRelease("cuda", release[1]).archs if isinstance(a, CudaArch)]
    archs = [*plain, *(dataclasses.replace(arch, ptx=True) for arch in plain)]
    with ThreadPoolExecutor() as pool:
        files = list(pool.map(lambda arch: compiled(nvcc, tmp_path, arch), archs))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *files], stdout=subprocess.PIPE, text=True, check=True
    )
    statuses = [int(line) for line in done.stdout.split()]
    assert set(statuses) <= {0, NO_BINARY, INVALID_PTX, UNSUPPORTED_PTX}, statuses
    tried = {str(arch): status == 0 for arch, status in zip(archs, statuses, strict=True)}
    assert tried == {str(arch): runs_on(arch, seen.gpus[0].arch) for arch in archs}
    assert len(set(tried.values())) == 2
