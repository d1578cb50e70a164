"""A library of nvcc's, split: cuobjdump finds the same cubins for each GPU, and it loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchwheel.split.labels import parse_labels
from torchwheel.split.wheels import SplitRequest, split
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.inspect.cuda import find_cuobjdump
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

KERNEL = """
#include <cuda_runtime.h>
__global__ void NAME(float *p) { p[threadIdx.x] += NUMBER; }
extern "C" int run_NAME(void) { NAME<<<1, 32>>>(nullptr); return cudaGetLastError(); }
"""
SOURCES = {
    "all": ("80,code=sm_80", "90,code=sm_90", "120,code=[sm_120,compute_120]"),
    "old": ("80,code=[sm_80,compute_80]",),
    "hopper": ("90a,code=sm_90a",),
}
CUBINS = {
    "sm8x": {"all.sm_80.cubin", "old.sm_80.cubin"},
    "sm9x": {"all.sm_90.cubin", "hopper.sm_90a.cubin", "old.sm_80.ptx"},
    "sm12x": {"all.sm_120.cubin", "all.sm_120.ptx", "old.sm_80.ptx"},
}
LOADER = [
    sys.executable,
    "-c",
    """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print(*(getattr(library, f"run_{name}")() for name in sys.argv[2:]))
""",
]


def codes(library: Path, folder: Path) -> dict[bytes, str]:
    """The bytes of each module that cuobjdump extracts, with its source, its arch and its kind."""
    folder.mkdir()
    program = find_cuobjdump()
    assert program is not None
    subprocess.run(
        [program, "-xelf", "all", "-xptx", "all", library],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    found = {}
    for path in folder.iterdir():
        data = path.read_bytes()
        # Link steps of nvcc add modules without a kernel.
        source = next((name for name in SOURCES if f"{name}_kernel".encode() in data), "empty")
        found[data] = f"{source}.{'.'.join(path.name.split('.')[-2:])}"
    return found


def test_the_cubins_of_each_label_are_those_of_the_plain_wheel(tmp_path: Path, nvcc: Path) -> None:
    objects = []
    for number, (name, archs) in enumerate(SOURCES.items()):
        text = KERNEL.replace("NAME", f"{name}_kernel").replace("NUMBER", str(number + 1))
        (tmp_path / f"{name}.cu").write_text(text)
        flags = ["-c", "-Xcompiler=-fPIC", *(f"-gencode=arch=compute_{arch}" for arch in archs)]
        subprocess.run([nvcc, *flags, f"{name}.cu"], cwd=tmp_path, check=True)
        objects.append(f"{name}.o")
    command = [nvcc, "-shared", "-Xcompiler=-fPIC", *objects, "-o", "libk.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = tmp_path / "libk.so"
    plain = make_wheel(
        tmp_path,
        tag="py3-none-linux_x86_64",
        files={"demo/libk.so": library.read_bytes()},
        claims=None,
        requires=(),
    )
    split(SplitRequest((plain,), parse_labels([]), "13.0", tmp_path / "out"), Quiet())
    before = codes(library, tmp_path / "plain")
    for label, expected in CUBINS.items():
        folder = tmp_path / label
        unpack = [sys.executable, "-m", "zipfile", "-e"]
        (made,) = (tmp_path / "out").glob(f"*-{label}.whl")
        subprocess.run([*unpack, made, folder], check=True)
        after = codes(folder / "demo" / "libk.so", folder / "codes")
        assert set(after.values()) == expected
        assert after.items() <= before.items()
        # Its constructors register all containers, and its host code is there.
        names = [f"{name}_kernel" for name in SOURCES]
        loads = [
            subprocess.run([*LOADER, path, *names], capture_output=True, check=True).stdout
            for path in (library, folder / "demo" / "libk.so")
        ]
        assert loads[0] == loads[1]
