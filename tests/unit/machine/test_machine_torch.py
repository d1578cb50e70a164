"""The torch and the tools that a machine has."""

import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel_runtime.arch.model import runtime_major
from torchwheel_runtime.machine.facts import Absent, Torch
from torchwheel_runtime.machine.torch import (
    find_torch,
    import_problem,
    read_torch,
    string_constants,
)
from torchwheel_runtime.versions import header_version, minor_version, tool_version, version_numbers

# As the wheels of 2.11.0+cu130 and 2.9.1+rocm6.4 have it, and a build from source.
CUDA = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.11.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '70d99e998b4955e0049d13a98d77ae1b14db1f45'
hip: Optional[str] = None
xpu: Optional[str] = None
"""
ROCM = """__version__ = '2.9.1+rocm6.4'
cuda: Optional[str] = None
hip: Optional[str] = '6.4.43484-123eb5128'
"""
# HIP's release and ROCm's differ from ROCm 10 on.
ROCM_10 = "__version__ = '2.14.0+rocm10.1'\ncuda = None\nhip = '7.3.60001'\nrocm = '10.1.0'\n"
SOURCE = "__version__ = '2.12.0a0+gitf1a6e6c'\ncuda = None\nhip = None\n"
INTEL = f"{SOURCE}xpu: Optional[str] = '20250301'\n"
OLD_STRINGS = 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n'


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Lays out a torch that is installed and not imported."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    sys.path_importer_cache.pop(str(tmp_path), None)
    folder = tmp_path / "torch"

    def lay_out(version: str | None, config: str | None = None):
        folder.mkdir()
        (folder / "__init__.py").write_text("raise AssertionError('imported')")
        if version is not None:
            (folder / "version.py").write_text(version)
        if config is not None:
            (folder / "share/cmake/Torch").mkdir(parents=True)
            (folder / "share/cmake/Torch/TorchConfig.cmake").write_text(config)
        return folder

    return lay_out


@pytest.mark.parametrize(
    ("version", "config", "facts"),
    [
        (CUDA, "", ("2.11.0+cu130", "13.0", None)),
        (ROCM, None, ("2.9.1+rocm6.4", None, "6.4.43484-123eb5128")),
        (ROCM_10, None, ("2.14.0+rocm10.1", None, "7.3.60001")),
        (SOURCE, None, ("2.12.0a0+gitf1a6e6c", None, None)),
        (INTEL, None, ("2.12.0a0+gitf1a6e6c", None, None)),
        ("__version__ = '2.6'\ncuda = '12.4'\n", OLD_STRINGS, ("2.6", "12.4", None)),
    ],
    ids=["CUDA", "ROCm", "ROCm 10", "source", "Intel's", "old strings"],
)
def test_a_torch_is_read_and_not_imported(installed, version, config, facts):
    folder = installed(version, config)
    xpu = "20250301" if version == INTEL else None
    rocm = "10.1.0" if version == ROCM_10 else None
    found = find_torch()
    assert found == Torch(*facts, folder, old_abi=config == OLD_STRINGS, xpu=xpu, rocm=rocm)
    assert found.built_with("rocm") == (rocm or found.hip)
    assert found.other == ("xpu" if xpu else None)
    assert "torch" not in sys.modules


BROKEN = {
    "an empty site": (None, "torch is not installed"),
    "a leftover folder": (None, "torch is broken: {} has no __init__.py"),
    "no version file": (None, "torch is broken: {}/version.py: No such file or directory"),
    **{
        f"a version file {text!r}": (text, "torch is broken: {}/version.py tells no version")
        for text in ("", "__version__ = 2", "not python at all (", "\0")
    },
}


@pytest.mark.parametrize("case", BROKEN)
def test_why_there_is_no_torch(installed, case):
    text, reason = BROKEN[case]
    folder = installed(text)
    if case == "an empty site":
        shutil.rmtree(folder)
    elif case == "a leftover folder":
        (folder / "__init__.py").unlink()
    assert find_torch() == Absent(reason.format(folder))


def module(**attributes) -> ModuleType:
    made = ModuleType("torch")
    made.__dict__.update(attributes)
    return made


def test_an_imported_torch_tells_of_itself(monkeypatch, tmp_path):
    built = SimpleNamespace(cuda="13.0", hip=None)
    native = SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=False)
    told = module(__version__="2.11.0+cu130", __file__=str(tmp_path / "__init__.py"))
    told.version, told._C = built, native
    monkeypatch.setitem(sys.modules, "torch", told)
    assert find_torch() == Torch("2.11.0+cu130", "13.0", None, tmp_path, old_abi=True)
    assert import_problem() is None


@pytest.mark.parametrize("stand_in", [module(), module(__version__="1", __spec__=None)])
def test_something_that_stands_in_for_torch_is_none(monkeypatch, stand_in, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_torch() == Absent("torch is not installed")


def test_why_torch_cannot_be_imported(installed):
    installed(CUDA)
    assert str(import_problem()) == "torch cannot be imported: AssertionError: imported"


def test_a_torch_that_hangs_is_not_waited_for(installed, monkeypatch):
    folder = installed(CUDA)
    (folder / "__init__.py").write_text("import time; time.sleep(60)")
    name = Path(sys.executable).name
    problem = import_problem(1)
    assert problem.problem
    assert str(problem) == f"torch cannot be imported: {name} gave no answer in 1 s"
    assert "python -c 'import torch'" in problem.fix


def test_a_torch_that_crashes(installed):
    folder = installed(CUDA)
    (folder / "__init__.py").write_text("import os; os.kill(os.getpid(), 11)")
    name = Path(sys.executable).name
    assert str(import_problem()) == f"torch cannot be imported: {name} was ended by signal 11"


@given(st.text())
def test_any_text_is_a_module_or_none(text):
    assert isinstance(string_constants(text), dict)


def test_the_last_value_of_a_name_counts():
    assert string_constants("a = b = 'x'\nb: str = 'y'\nc = 'z'\nc = None\nd: int") == {
        "a": "x",
        "b": "y",
    }


def test_a_folder_without_files(tmp_path):
    assert isinstance(read_torch(tmp_path), Absent)


NUMBER = st.integers(0, 10**9 - 1)
TEXT = st.text(max_size=80)

# As the real ones print it: CUDA 13.0's nvcc and ptxas, and the PTX that 12.4's cicc makes.
NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
PTX = """//
// Generated by NVIDIA NVVM Compiler
//
// Cuda compilation tools, release 12.4, V12.4.131
// Based on NVVM 7.0.1
//

.version 8.4
"""
# Of HIP 6.4, as Debian packs it.
HIP = """#define HIP_VERSION_MAJOR 6
#define HIP_VERSION_MINOR 4
#define HIP_VERSION_PATCH 43484
#define HIP_VERSION_GITHASH ""
#define HIP_VERSION    (HIP_VERSION_MAJOR * 10000000 + HIP_VERSION_MINOR * 100000)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("13.0", (13, 0)),
        ("6.4.43482-0f2d60242", (6, 4, 43482)),
        ("580.65.06", (580, 65, 6)),
        ("6.1.0-28-amd64", (6, 1, 0)),
        ("12", (12,)),
        ("", ()),
        ("none", ()),
        ("v13", ()),
        ("\u0661.2", ()),
    ],
)
def test_numbers(text, found):
    assert version_numbers(text) == found


@given(st.lists(NUMBER, min_size=1, max_size=5), st.sampled_from(["", "-3", "+cu130", "a0", " x"]))
def test_numbers_are_what_a_version_begins_with(parts, rest):
    text = ".".join(map(str, parts))
    assert version_numbers(text + rest) == tuple(parts)
    assert minor_version(text + rest) == ".".join(map(str, parts[:2]))


@given(TEXT)
def test_any_text_has_numbers_or_none(text):
    assert all(number >= 0 for number in version_numbers(text))


@given(TEXT, NUMBER, NUMBER, NUMBER, TEXT)
def test_a_tool_names_its_release_somewhere(before, a, b, c, after):
    found = tool_version(
        f"{before}\nCuda compilation tools, release {a}.{b}, V{a}.{b}.{c}\n{after}"
    )
    assert found is not None
    assert len(version_numbers(found)) == 3


def test_what_tools_print():
    assert tool_version(NVCC) == "13.0.88"
    assert tool_version(PTX) == "12.4.131"
    assert tool_version("gcc (Debian 12.2.0-14) 12.2.0") is None
    assert tool_version("V13.0") is None


@given(NUMBER, NUMBER, st.sampled_from(["", " ", "  \t"]))
def test_hips_header_tells_its_release(major, minor_, space):
    header = f"#{space}define HIP_VERSION_MAJOR {major}\n#define HIP_VERSION_MINOR{space} {minor_}"
    assert header_version(header, "HIP") == f"{major}.{minor_}"


def test_what_hips_headers_say():
    assert header_version(HIP, "HIP") == "6.4"
    assert header_version("#define HIP_VERSION_MAJOR 6\n", "HIP") is None
    assert header_version("", "HIP") is None


@given(TEXT)
def test_any_header_is_one_of_a_release_or_of_none(text):
    for found in (header_version(text, "HIP"), tool_version(text)):
        assert found is None or version_numbers(found)


@pytest.mark.parametrize(
    ("backend", "release", "major"),
    [
        ("cuda", "13.0", "13"),
        ("cuda", "10.2", "10"),
        ("rocm", "6.4.43484-123eb5128", "6"),
        ("rocm", "7.2", "7"),
        ("rocm", "10.1.0", "7"),
        ("rocm", "", ""),
    ],
)
def test_the_soname_of_a_runtime_has_hips_major(backend, release, major):
    assert runtime_major(backend, release) == major
