"""Containers that `torchwheel split` wrote, loaded on this GPU by its driver."""

import subprocess
import sys
from pathlib import Path

import pytest

from elfmaker import linked
from torchwheel.split.labels import SplitLabel
from torchwheel.split.libraries import blocks_for, read_cuda_library
from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.arch.model import CudaArch

pytestmark = pytest.mark.gpu
NO_BINARY = 209
LOAD = """
import ctypes, pathlib, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for path in sys.argv[1:]:
    image = pathlib.Path(path).read_bytes()
    print(cuda.cuModuleLoadData(ctypes.byref(module), image))
"""
OUTPUTS = Path(__file__).parents[1] / "unit" / "inspect" / "outputs"


def test_the_driver_takes_what_is_left(tmp_path: Path) -> None:
    """A container without modules is like one for other GPUs: the driver finds no binary."""
    seen = visible_gpus("cuda")
    if not seen.gpus:
        pytest.skip(f"no NVIDIA GPU: {seen.why}")
    gpu = seen.gpus[0].arch
    assert isinstance(gpu, CudaArch)
    section = (OUTPUTS / "lz4_12.4.nv_fatbin").read_bytes()
    (tmp_path / "lib.so").write_bytes(linked(sections={".nv_fatbin": section}))
    plain = read_cuda_library(tmp_path / "lib.so", "lib.so")
    assert plain is not None
    (whole,) = plain.containers
    images = {}
    for name, gpus in {"own": (gpu,), "8.0": (CudaArch(8, 0),), "none": ()}.items():
        path = tmp_path / f"{name}.so"
        path.write_bytes(b"".join(blocks_for(plain, SplitLabel(name, gpus, ptx=False))))
        images[name] = tmp_path / f"{name}.fatbin"
        images[name].write_bytes(path.read_bytes()[whole.at : whole.end])
    command = [sys.executable, "-c", LOAD, *images.values()]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    own, for_80, none = map(int, done.stdout.split())
    assert none == NO_BINARY
    assert for_80 == (0 if gpu.major == 8 else NO_BINARY)
    # It has machine code for 8.0 and 9.0a alone.
    assert own == (0 if gpu.major == 8 or gpu == CudaArch(9, 0) else NO_BINARY)
