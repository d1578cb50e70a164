"""torch's hipify on an ordinary CUDA project: the real one, on a copy."""

import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from targets import CUDA_ATEN, PY312, ROCM_STABLE
from torchwheel_runtime.builder.extension import Extension, Module, Operator
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.builder.sources import Sources, hipify, hipify_sources
from torchwheel_runtime.errors import TorchwheelError

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


@pytest.mark.nightly
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


ORDINARY = Extension(
    "plain",
    "csrc",
    (Operator("scale", ("csrc/scale.cu",)),),
    module=Module("plain._C"),
    include_dirs=("include",),
    ordinary=True,
)
GFX942 = dataclasses.replace(ROCM_STABLE, abi="aten", python=PY312, sysroot=())


def test_an_ordinary_extension_for_rocm_compiles_the_translation(project, tmp_path):
    sources = Sources({"csrc/scale.cu": GFX942.toolkit.archs}, [], [])
    target = dataclasses.replace(GFX942, source=project)
    found, where = hipify_sources(ORDINARY, sources, target, tmp_path / "out")
    assert list(found.device) == ["csrc/scale.hip"]
    steps = next(iter(Recipe(ORDINARY, found, where).groups.values()))
    assert steps[0].inputs == (str(tmp_path / "out" / "csrc" / "scale.hip"),)
    assert "--offload-arch=gfx942" in steps[0].command
    assert f"-I{tmp_path / 'out' / 'include'}" in steps[0].command


@pytest.mark.parametrize("change", [{"ordinary": False}, {}])
def test_others_are_compiled_as_they_are(project, tmp_path, change):
    extension = dataclasses.replace(ORDINARY, **change)
    target = GFX942 if change else CUDA_ATEN
    sources = Sources([], [], [])
    assert hipify_sources(extension, sources, target, tmp_path / "out") == (sources, target)
    assert not (tmp_path / "out").exists()


SETUP = """\
from pathlib import Path
from setuptools import setup
from torchwheel_runtime.builder.setuptools_ext import setup_arguments
arguments = setup_arguments(Path(__file__).parent, "pkg", "pkg/plain/extension.py")
setup(name="plain", version="1", **arguments)
"""
DESCRIPTION = """\
from torchwheel_runtime.builder import Extension, Module, Operator
EXTENSION = Extension(
    package="plain",
    sources="source",
    operators=(
        Operator("scale", ("csrc/scale.cu",), bindings={"aten": ("csrc/module.cpp",)}),
    ),
    module=Module("plain._C"),
    include_dirs=("include",),
    ordinary=True,
)
"""
MODULE = """\
#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("name", [] { return "plain"; }); }
"""
# What hipcc makes of the translation is tests/containers/test_hipify_compiles.py's; here is seen
# that it gets it. The object is an empty one of the host's compiler.
HIPCC = """\
#!/bin/sh
for word in "$@"; do
  case "$word" in *.hip) cp "$word" "$SEEN" ;; esac
  test "$last" = -o && out="$word"
  last="$word"
done
exec g++ -c -x c++ /dev/null -o "$out"
"""


@pytest.mark.nightly
def test_setup_py_hands_hipcc_the_translation(project, tmp_path):
    tree, rocm, seen = tmp_path / "tree", tmp_path / "rocm", tmp_path / "seen.hip"
    shutil.copytree(project, tree / "source")
    (tree / "pkg" / "plain").mkdir(parents=True)
    (rocm / "bin").mkdir(parents=True)
    (rocm / "lib").mkdir()
    for path, text in {
        tree / "setup.py": SETUP,
        tree / "source" / "csrc" / "module.cpp": MODULE,
        tree / "pkg" / "plain" / "__init__.py": "",
        tree / "pkg" / "plain" / "extension.py": DESCRIPTION,
        rocm / "bin" / "hipcc": HIPCC,
    }.items():
        path.write_text(text)
    (rocm / "bin" / "hipcc").chmod(0o755)
    subprocess.run(
        ["g++", "-shared", "-o", rocm / "lib" / "libamdhip64.so", "-x", "c++", os.devnull],
        check=True,
    )
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    environ = {
        **os.environ,
        "TORCHWHEEL_ABI": "aten",
        "TORCHWHEEL_BACKEND": "rocm",
        "TORCHWHEEL_TOOLKIT": "7.2",
        "TORCHWHEEL_TORCH": str(Path(torch.origin or "").parents[1]),
        "TORCHWHEEL_TORCH_RELEASE": "2.13",
        "ROCM_PATH": str(rocm),
        "PYTORCH_ROCM_ARCH": "gfx942",
        "SEEN": str(seen),
    }
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", tmp_path / "built"],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hipMalloc(" in seen.read_text()
    assert list((tmp_path / "built" / "plain").glob("_C*.so"))
