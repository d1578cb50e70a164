"""A universal wheel on a GPU that it has no code for: real compilers, a stand-in for the driver.

The kernels are not run: tensors of the CPU say that they are on GPU 0. The reference takes them,
and the native kernel refuses them with a sentence of its own.
"""

import ctypes
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from doctor_bench import CUDA_TORCH

import partsmaker
import setups
from fusedops.extension import EXTENSION
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder.extension import SOURCES
from torchwheel_runtime.builder.ninja import build, parallel_jobs
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.builder.sources import sources_of
from torchwheel_runtime.builder.target import DeviceCompiler, Target, TorchHeaders
from torchwheel_runtime.builder.variables import cuda_runtime
from torchwheel_runtime.claims import FILE, Claims, Part, dumps

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
INTERFACE = re.compile(rb"torchwheel_interface=(\w+)\0")
NATIVE = "vector_add: a: expected a tensor on a GPU, found cpu"
WHY = "prebuilt: no kernel library serves GPU 0 (NVIDIA H200, 9.0): cu130: expected code for GPU 0"
SCRIPT = """
import json, pathlib, re, warnings
import torch
import fusedops
from torchwheel_runtime import runtime

class OnGpu(torch.Tensor):
    def get_device(self):
        return 0

def mapped():
    maps = pathlib.Path("/proc/self/maps").read_text()
    return sorted(set(re.findall(r"libnvidia-ml|front_end/stable|kernels/cu130|/jit/.*", maps)))

def call():
    # Without a kernel of its own for a key, an operator must not be sent there.
    has = torch._C._dispatch_has_kernel_for_dispatch_key("fusedops::vector_add", "BackendSelect")
    keys = gpu.add(torch._C.DispatchKey.BackendSelect) if has else gpu
    try:
        return torch.ops.fusedops.vector_add.default.redispatch(keys, x, x).tolist()
    except RuntimeError as error:
        return str(error)

gpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
x = torch.ones(2).as_subclass(OnGpu)
found = {"imported": mapped()}
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always", RuntimeWarning)
    runtime.load_now("fusedops")
    found |= {"loaded": mapped(), "calls": [call(), call()], "called": mapped()}
status = fusedops.status()
print(json.dumps({
    **found, "choices": status.choices,
    "warnings": [str(one.message) for one in heard if one.category is RuntimeWarning],
    "ways": {one.operator: one.way for one in status.operators},
}))
"""


def front_end(nvcc: Path, folder: Path) -> Path:
    """The stable front end, with one family."""
    family = dataclasses.replace(EXTENSION, operators=(EXTENSION.operator("vector_add"),))
    root, machine = nvcc.parents[1], os.uname().machine
    target = Target(
        name="stable",
        abi="stable",
        source=ROOT / "csrc",
        toolkit=DeviceCompiler(
            ToolkitRelease("cuda", "13.0"), root, (parse("9.0"),), cuda_runtime(root, machine)
        ),
        torch=TorchHeaders(Path(torch.__file__).parents[1], EXTENSION.torch),
        platform=f"linux_{machine}",
        cross=False,
        cxx="g++",
        part="front_end",
    )
    recipe = Recipe(family, sources_of(family, target), target)
    return build(recipe, folder, None, parallel_jobs(), lambda _: None)


@pytest.fixture(scope="module")
def setup(nvcc, tmp_path_factory):
    """A Python with torch, a GPU of 9.0 and a universal wheel whose kernels are for 8.0."""
    folder = tmp_path_factory.mktemp("no_code")
    made = setups.Setup(folder)
    made.add_torch(**CUDA_TORCH)
    made.add_gpu()
    package = made.site / "fusedops"
    shutil.copytree(
        ROOT / "pkg" / "fusedops", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "csrc", package / SOURCES)
    stable = package / "_lib" / "front_end" / "stable.so"
    stable.parent.mkdir(parents=True)
    shutil.copyfile(front_end(nvcc, folder / "build"), stable)
    interface = INTERFACE.search(stable.read_bytes())[1].decode()
    cu130 = partsmaker.kernels(package / "_lib" / "kernels" / "cu130.so", 0, interface)
    parts = (
        Part("front_end", "stable", *file_and_hash(stable, made.site), EXTENSION.torch),
        Part(
            *("kernels", "cu130", *file_and_hash(cu130, made.site)),
            backend="cuda",
            toolkit_version="13.0",
            archs=(parse("8.0"),),
        ),
    )
    info = made.site / "fusedops-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fusedops\nVersion: 1.0.0\n")
    (info / FILE).write_text(dumps(Claims("universal", "universal", "2.6", parts=parts)))
    made.env |= {"CUDA_HOME": str(nvcc.parents[1]), "TORCHWHEEL_CACHE": str(folder / "cache")}
    return made


def file_and_hash(path: Path, site: Path) -> tuple[str, str]:
    return str(path.relative_to(site)), hashlib.sha256(path.read_bytes()).hexdigest()


def run(setup, **env: str) -> tuple[dict[str, object], str]:
    done = subprocess.run(
        [setup.python, "-c", SCRIPT],
        cwd=setup.here,
        env={**setup.env, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def without_compiler(setup) -> dict[str, str]:
    return {"PATH": str(setup.here), "TORCHWHEEL_CACHE": str(setup.folder / "empty")}


def test_its_first_call_builds_kernels_for_the_front_end_that_is_there(setup):
    found, said = run(setup)
    # No driver and no library before the first call; kernels that fit no GPU are never mapped.
    assert found["imported"] == []
    assert found["loaded"] == ["front_end/stable", "libnvidia-ml"]
    assert found["calls"] == [NATIVE, NATIVE]
    (built,) = set(found["called"]) - set(found["loaded"])
    assert built.endswith("/vector_add.so")
    (warning,) = found["warnings"]
    assert warning.startswith(f"fusedops: built here, because {WHY}"), warning
    assert "fusedops.vector_add: building it" in said
    assert found["ways"]["vector_add"] == "jit build"
    assert found["choices"][1].startswith("GPU 0 (NVIDIA H200, 9.0): jit build; cu130: expected ")
    library = ctypes.CDLL(str(next((setup.folder / "cache").rglob("vector_add.so"))))
    assert ctypes.c_void_p.in_dll(library, "torchwheel_kernel_vector_add").value
    again, said = run(setup, TORCHWHEEL_MODE="error")
    assert (again["calls"], again["ways"]["vector_add"]) == ([NATIVE, NATIVE], "jit cache")
    assert "building" not in said


def test_an_arch_list_without_the_gpu_is_named(setup):
    found, _ = run(setup, TORCH_CUDA_ARCH_LIST="8.0")
    assert found["calls"] == [[2.0, 2.0]] * 2
    (warning,) = found["warnings"]
    assert "archs: expected code for GPU 0 (NVIDIA H200, 9.0); found 8.0; name 9.0 in" in warning


def test_without_a_compiler_plain_pytorch_answers_after_one_warning(setup):
    found, _ = run(setup, **without_compiler(setup))
    assert found["calls"] == [[2.0, 2.0]] * 2
    (warning,) = found["warnings"]
    assert warning.startswith(f"fusedops: vector_add on plain PyTorch: {WHY}"), warning
    assert "no C++ compiler (g++, c++ or clang++) on the PATH" in warning
    assert "`python -m fusedops` says what fixes it" in warning
    assert "archs: " not in warning  # nobody has asked for an arch yet


def test_mode_error_raises_at_the_call_and_not_at_the_import(setup):
    found, _ = run(setup, TORCHWHEEL_MODE="error", **without_compiler(setup))
    assert found["warnings"] == []
    for error in found["calls"]:
        assert error.startswith(f"fusedops: vector_add on plain PyTorch: {WHY}"), error


def test_the_doctor_says_what_was_chosen_and_why_in_80_columns(setup):
    done = subprocess.run(
        [setup.python, "-m", "fusedops"],
        cwd=setup.here,
        env=setup.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "front end: stable\n" in done.stdout
    text = " ".join(done.stdout.split())
    gpu = "GPU 0 (NVIDIA H200, 9.0)"
    why = f"cu130: expected code for {gpu}, found 8.0"
    assert f"{gpu}: to be built at its first call on a GPU; {why}" in text
