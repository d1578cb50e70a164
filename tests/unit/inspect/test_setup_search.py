"""What is read of a setup.py without running it, and what a person is asked."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.inspect.project_scripts import LARGEST, read_scripts, why_empty
from torchwheel.inspect.setup_search import search_setup
from torchwheel_runtime.errors import UsageError

HEAD = """\
import os
import glob
from pathlib import Path
from setuptools import setup, find_packages
import torch
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension
"""


def read(text):
    return search_setup((HEAD + textwrap.dedent(text)).encode())


def test_it_is_never_run(tmp_path):
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\n"
        "open('ran', 'w')\nraise SystemExit(input('continue? '))\nsetup(name='demo')\n"
    )
    assert read_scripts(tmp_path).arguments == {"name": "demo"}
    assert [path.name for path in tmp_path.iterdir()] == ["setup.py"]


_TAG = "code decides the tag of a wheel; fill in abis.ordinary.python"


@pytest.mark.parametrize(
    ("text", "field", "found", "todo"),
    [
        ("setup(name='a', zip_safe=False)", "arguments", {"name": "a", "zip_safe": False}, []),
        ("setup(name=NAME)", "code", {"name": "setup.py:7"}, []),
        ("setup(name=f())\nsetup(name='b')", "arguments", {"name": "b"},
         ["setup.py:8: setup() is called more than once; the last call was read"]),
        ("needs = ['numpy']\nsetup(install_requires=needs)", "arguments",
         {"install_requires": ["numpy"]}, []),
        ("needs = []\nsetup(install_requires=needs)", "arguments", {"install_requires": []}, []),
        ("needs = []\nneeds.append('a')\nsetup(install_requires=needs)", "code",
         {"install_requires": "setup.py:9"}, []),
        ("needs = []\nneeds += ['a']\nsetup(install_requires=needs)", "code",
         {"install_requires": "setup.py:9"}, []),
        ("if X:\n    needs = ['a']\nsetup(install_requires=needs)", "code",
         {"install_requires": "setup.py:9"}, []),
        ("setup(install_requires=['a'] if X else None)", "arguments", {"install_requires": ["a"]},
         ["setup.py:7: install_requires of setup() is under a condition, and was taken"]),
        ("setup(zip_safe=None if X else True)", "arguments", {"zip_safe": True}, []),
        ("setup(install_requires=['a'] if X else ['b'])", "code",
         {"install_requires": "setup.py:7"}, []),
        ("setup(**given)", "arguments", {},
         ["setup.py:7: arguments of setup() are in a variable; compare them"]),
        ("CUDAExtension('demo._C', ['a.cu'])", "extensions",
         [("CUDAExtension", "setup.py:7", "demo._C", False)], []),
        ("x = [CppExtension(name='a', sources=files(), py_limited_api=True)]", "extensions",
         [("CppExtension", "setup.py:7", "a", True)], []),
        ("CUDAExtension(f'{NAME}._C', ['a.cu'], py_limited_api=False)", "extensions",
         [("CUDAExtension", "setup.py:7", None, False)], []),
        ("E = CUDAExtension if torch.version.cuda else None", "extensions",
         [("CUDAExtension", "setup.py:7", None, False)],
         ["setup.py:7: a CUDAExtension is made by code; see that it is compiled"]),
        ("os.environ['TORCH_CUDA_ARCH_LIST'] = '8.0'", "own_archs", True, []),
        ("os.environ['TORCH_CUDA_ARCH_LIST']", "own_archs", False, []),
        ("try:\n    import rich\nexcept ImportError:\n    rich = None\nimport numpy as np, a.b",
         "modules", ("a", "numpy", "setuptools", "torch"), []),
        ("cmdclass = BuildExtension.with_options(use_ninja=False)", "ninja", False, []),
        ("cmdclass = BuildExtension.with_options(use_ninja=True)", "ninja", True, []),
        # Questions whose answer depends on the machine.
        ("torch.cuda.is_available()", "questions", [("torch.cuda.is_available", "setup.py:7")], []),
        ("from torch.cuda import device_count as n", "questions",
         [("torch.cuda.device_count", "setup.py:7")], []),
        ("run(['/usr/bin/nvidia-smi', '-L'])", "questions", [("nvidia-smi", "setup.py:7")], []),
        ("torch.backends.mps.is_available()", "questions", [], []),
        # Tags.
        ("setup(options={'bdist_wheel': {'py_limited_api': 'cp39'}})", "arguments",
         {"options": {"bdist_wheel": {"py_limited_api": "cp39"}}}, []),
        ("setup(options={} if X else {'bdist_wheel': {'py_limited_api': 'cp39'}})", "arguments",
         {"options": {"bdist_wheel": {"py_limited_api": "cp39"}}},
         ["setup.py:7: options of setup() is under a condition, and was taken"]),
        ("E = CUDAExtension if X else None\nE('a', [], py_limited_api=X)", "extensions",
         [("CUDAExtension", "setup.py:7", None, True)],
         ["setup.py:7: a CUDAExtension is made by code; see that it is compiled"]),
        ("o = dict(py_limited_api=API)", "ninja", True, [f"setup.py:7: {_TAG}"]),
        ("class W(bdist_wheel):\n    def get_tag(self): ...", "ninja", True,
         [f"setup.py:8: {_TAG}"]),
        # Archs.
        ("a = [f'-gencode=arch=compute_{n},code=sm_{n}' for n in (80, 90)]", "archs", (),
         ["setup.py:7: an arch of -gencode is made by code; list the archs in the matrix"]),
        ('"""Builds with code=sm_80 by default."""', "archs", (), []),
        ("os.getenv(PREFIX + 'X')", "variables", [],
         ["setup.py:7: the name of an environment variable is made by code; look it up"]),
    ],
)  # fmt: skip
def test_what_a_line_names_and_what_a_person_is_asked(text, field, found, todo):
    script = read(text + "\n")
    value = getattr(script, field)
    if field in {"extensions", "questions"}:
        value = [tuple(vars(one).values()) for one in value]
    assert (list(value) if isinstance(found, list) else value) == found
    assert list(script.todo) == todo


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ('"-gencode", "arch=compute_80,code=sm_80"', ["8.0"]),
        ('"-gencode=arch=compute_90a,code=sm_90a"', ["9.0a"]),
        ('"--generate-code=arch=compute_120,code=[sm_120,compute_120]"', ["12.0+PTX"]),
        ('"-gencode", "arch=compute_90,code=compute_90"', ["9.0+PTX"]),
        ('"-arch=sm_86"', ["8.6+PTX"]),
        ('"-arch=native", "-O3"', []),
        ('"-Xptxas=-arch"', []),
    ],
)
def test_archs_in_compiler_flags(flags, found):
    assert [*map(str, read(f"flags = [{flags}]\n").archs)] == found


def test_archs_under_conditions_are_all_read_and_a_person_is_asked():
    script = read("""
        flags = ["-gencode", "arch=compute_80,code=sm_80"]
        if bare_metal >= Version("11.8"):
            flags += ["-gencode", "arch=compute_90,code=sm_90"]
        if CUDA >= (12, 8) and not SKIP:
            flags += ["-gencode", "arch=compute_120,code=sm_120"]
        else:
            flags += ["-gencode", "arch=compute_70,code=sm_70"]
    """)
    assert [*map(str, script.archs)] == ["8.0", "9.0", "12.0", "7.0"]
    assert script.todo == (
        "setup.py:10: archs are under a condition, also 12, 14; remove those that it leaves out",
    )


@pytest.mark.parametrize(
    ("line", "name", "becomes"),
    [
        # What a project says about its builds without a GPU: it is set, and a guess is a TODO.
        ('os.getenv("A_FORCE_BUILD", "FALSE") == "TRUE"', "A_FORCE_BUILD", "TRUE"),
        ('os.environ.get("FORCE_CUDA", "0") == "1"', "FORCE_CUDA", "1"),
        ('os.getenv("FORCE_CUDA", default="0")', "FORCE_CUDA", "1"),
        ('os.getenv("FORCE_CUDA", False)', "FORCE_CUDA", "1"),
        ('os.getenv("FORCE_CUDA", "OFF").upper() in ("ON", "1")', "FORCE_CUDA", "ON"),
        ('os.environ["FORCE_CUDA"]', "FORCE_CUDA", "1?"),
        ('"FORCE_CUDA" in os.environ', "FORCE_CUDA", "1?"),
        ('getenv("FORCE_CUDA", OFF) == "ON"', "FORCE_CUDA", "1?"),
        ('os.getenv("A_KEEP_CUDA_BUILD", "FALSE")', "A_KEEP_CUDA_BUILD", "TRUE?"),
        ('os.getenv("A_BUILD_EXT", "0")', "A_BUILD_EXT", "1?"),
        ('os.getenv("WITH_KERNELS", 0)', "WITH_KERNELS", "1?"),
        # A person must look them up.
        ('os.getenv("A_CUDA_ARCH", "")', "A_CUDA_ARCH", "archs"),
        ('os.environ["A_SMS"]', "A_SMS", "archs"),
        ('os.getenv("A_BACKEND", "cpu")', "A_BACKEND", "switch"),
        ('"A_BUILD_EXT" in os.environ', "A_BUILD_EXT", "switch"),
        ('os.environ.get("TARGET_DEVICE")', "TARGET_DEVICE", "switch"),
        # On by default, or nothing of kernels.
        ('os.getenv("USE_CUDA", "1")', "USE_CUDA", ""),
        ('bool(int(os.getenv("FORCE_ONLY_CPU", "0")))', "FORCE_ONLY_CPU", ""),
        ('os.getenv("A_FORCE_CXX11_ABI", "FALSE")', "A_FORCE_CXX11_ABI", ""),
        ('os.getenv("A_SKIP_CUDA_BUILD", "no")', "A_SKIP_CUDA_BUILD", ""),
        ('os.getenv("A_BUILD_TYPE")', "A_BUILD_TYPE", ""),
        ('os.getenv("MAX_JOBS")', "MAX_JOBS", ""),
        ('os.getenv("TORCH_CUDA_ARCH_LIST")', "TORCH_CUDA_ARCH_LIST", ""),
        # Other ways to read the environment.
        ('os.environ.setdefault("A_FORCE_BUILD", "0")', "A_FORCE_BUILD", "1"),
        ('(e := 1)\nenv = os.environ.copy()\nenv.get("A_BUILD_EXT")', "A_BUILD_EXT", "switch"),
        ('1\nNAME = "A_BUILD_EXT"\nos.environ[NAME]', "A_BUILD_EXT", "switch"),
        ('1\ndef flag(name, off="0"):\n    return os.getenv(name, off) == "1"\n'
         'flag("FORCE_CUDA", "0")', "FORCE_CUDA", "1"),
        # Words of the command line.
        ('"--cuda_ext" in sys.argv', "--cuda_ext", "switch"),
        ('"--debug" in sys.argv', "--debug", ""),
        ('parser.add_argument("-c", "--with-cuda")', "--with-cuda", "switch"),
    ],
)  # fmt: skip
def test_a_variable_and_what_becomes_of_it(line, name, becomes):
    (found,) = read(f"value = {line}\n").variables
    assert found.name == name
    looked_up = "archs" if found.names_archs else "switch" * found.is_switch
    assert (found.on + "?" * found.is_guess if found.is_set else looked_up) == becomes


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        ("for name in os.environ.keys(): f(name)", "reads the environment as a whole"),
        ("options = Options(os.environ)", "reads the environment as a whole"),
        ("subprocess.run(['make'], env=os.environ)", ""),
        ("exec(open('demo/version.py').read())", ""),
        ("exec(text)", "exec() runs code that was not read; look it up"),
    ],
)
def test_what_is_not_understood_is_said(line, todo):
    found = read(line + "\n").todo
    assert [one.partition(": ")[2][: len(todo)] for one in found] == ([todo] if todo else [])


@pytest.mark.parametrize(
    ("line", "asked", "answer"),
    [
        ("torch.cuda.is_available()", "torch.cuda.is_available", "a GPU of each arch"),
        ("import torch.cuda as c\nc.device_count()",
         "torch.cuda.device_count", "a GPU of each arch"),
        ("from torch import cuda as c\nc.get_device_capability(0)",
         "torch.cuda.get_device_capability", "a GPU of each arch"),
        ('getattr(torch.cuda, "is_available")()', "torch.cuda.is_available", "a GPU of each arch"),
        ("torch.accelerator.is_available()",
         "torch.accelerator.is_available", "a GPU of each arch"),
        ("torch._C._cuda_getDeviceCount()", "torch._C._cuda_getDeviceCount", ""),
        ("if CUDA_HOME is None: pass", "CUDA_HOME", "the toolkit"),
        ("ok = use and cpp_extension.CUDA_HOME", "CUDA_HOME", "the toolkit"),
        ("if not ROCM_HOME: pass", "ROCM_HOME", "the toolkit"),
        ("import pynvml", "pynvml", ""),
        ("os.path.exists('/dev/nvidia0')", "/dev/nvidia0", ""),
        ("ctypes.CDLL('libcuda.so.1')", "libcuda.so.1", ""),
        ("os.path.join(CUDA_HOME, 'include')", None, ""),
    ],
)  # fmt: skip
def test_a_question_and_who_answers_it_in_a_build(line, asked, answer):
    found = [(one.name, one.answer) for one in read(line + "\n").questions]
    assert list(dict.fromkeys(found)) == ([(asked, answer)] if asked else [])


@pytest.mark.parametrize(
    ("line", "torch"),
    [
        ("flags = ['-DTORCH_TARGET_VERSION=0x020a000000000000']", "2.10"),
        ("flags = ['-DTORCH_TARGET_VERSION=0x020B000000000000ULL']", "2.11"),
        ("macros = [('TORCH_TARGET_VERSION', '0x020b000000000000')]", "2.11"),
        ("flags = ['-DTORCH_TARGET_VERSION=' + VERSION]", None),
        ("flags = ['-DPy_LIMITED_API=0x03090000']", None),
    ],
)
def test_the_torch_whose_stable_abi_it_keeps_to(line, torch):
    found = read(line + "\n").stable
    assert (found and found.name) == torch


def test_a_variable_that_is_read_twice_is_named_once_with_its_default():
    twice = read('if "FORCE_CUDA" in os.environ: pass\nos.getenv("FORCE_CUDA", "OFF")\n')
    (variable,) = twice.variables
    assert (str(variable), variable.on) == ("FORCE_CUDA (setup.py:7)", "ON")


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return read_scripts(folder)


ASKS = "import os\nON = os.getenv('A_BUILD_EXT')\n"


@pytest.mark.parametrize(
    ("setup", "file", "more"),
    [
        ("import helper", "helper.py", {}),
        ("from tools.helper import ON", "tools/helper.py", {}),
        ("from tools import helper", "tools/helper.py", {}),
        ("import sys\nsys.path.insert(0, 'tools')\nimport helper", "tools/helper.py", {}),
        ("import first", "second.py", {"first.py": "import second\n"}),
        ("import first", "first/part.py", {"first/__init__.py": "from . import part\n"}),
        ("import importlib\nimportlib.import_module('helper')", "helper.py", {}),
        ("exec(open('tools/helper.py').read())", "tools/helper.py", {}),
        ("import runpy\nrunpy.run_path('tools/helper.py')", "tools/helper.py", {}),
        ("", "tools/backend.py", {"pyproject.toml":
         '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["tools"]\n'}),
    ],
)  # fmt: skip
def test_files_that_setup_py_loads_are_read_too(tmp_path, setup, file, more):
    script = write(tmp_path, {"setup.py": setup + "\n", file: ASKS, **more})
    assert [str(one) for one in script.variables] == [f"A_BUILD_EXT ({file}:2)"]


def test_a_file_that_cannot_be_read_is_a_todo(tmp_path):
    script = write(tmp_path, {"setup.py": "import helper\n", "helper.py": "print 'two'\n"})
    assert script.todo == ("helper.py: could not be read; look it up",)


BY_CMAKE = '[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n'
OPTIONS = """\
    option(WITH_CUDA "Compile # kernels" OFF)  # option(NOT_READ "x" OFF)
    set(BACKEND "cpu" CACHE STRING "one of them")
    set_property(CACHE BACKEND PROPERTY STRINGS cpu cuda hip)
    option(BUILD_TESTS "Build tests" OFF)
    add_subdirectory(csrc)
"""
BELOW = """\
    if($ENV{DEMO_CUDA_ARCH})
      execute_process(COMMAND nvidia-smi)
      execute_process(COMMAND python -c "import torch; torch.cuda.is_available()")
    endif()
    list(APPEND CMAKE_CUDA_ARCHITECTURES ${ARCHS})
    set(SHOWN ${CMAKE_CUDA_ARCHITECTURES_ALL})
"""


def test_cmake_files_are_read_with_those_that_they_add(tmp_path):
    files = {"pyproject.toml": BY_CMAKE, "CMakeLists.txt": OPTIONS, "csrc/CMakeLists.txt": BELOW}
    script = write(tmp_path, files)
    assert script.cmake
    assert [(str(one), one.on if one.is_set else None) for one in script.variables] == [
        ("WITH_CUDA (CMakeLists.txt:1)", "ON"),
        ("BUILD_TESTS (CMakeLists.txt:4)", None),
        ("BACKEND (CMakeLists.txt:2)", "cuda"),
        ("DEMO_CUDA_ARCH (csrc/CMakeLists.txt:1)", None),
    ]
    assert [str(one) for one in script.questions] == [
        "nvidia-smi (csrc/CMakeLists.txt:2)",
        "torch.cuda.is_available (csrc/CMakeLists.txt:3)",
    ]
    assert script.own_archs
    assert [*script.switches] == [
        "csrc/CMakeLists.txt:2 asks for a GPU (nvidia-smi)",
        "CMakeLists.txt:1 reads WITH_CUDA",
        "CMakeLists.txt:2 reads BACKEND",
        "csrc/CMakeLists.txt:1 reads DEMO_CUDA_ARCH",
    ]


def test_the_cmake_file_that_setup_py_calls_lies_below(tmp_path):
    setup = "import subprocess\nsubprocess.run(['cmake', 'csrc', f'-DARCHS={archs}'])\n"
    script = write(tmp_path, {"setup.py": setup, "csrc/CMakeLists.txt": OPTIONS + BELOW})
    # setup.py itself gives CMake its options.
    assert [str(one) for one in script.variables] == ["DEMO_CUDA_ARCH (csrc/CMakeLists.txt:6)"]
    assert (script.cmake, script.own_archs) == (True, True)
    other = write(tmp_path / "other", {"setup.py": setup})
    assert not other.cmake
    # The program is in the build environment; a backend that calls CMake brings it.
    backend = {"setup.py": setup, "pyproject.toml": BY_CMAKE, "CMakeLists.txt": OPTIONS}
    by_backend = write(tmp_path / "backend", backend)
    assert [one.modules for one in (script, other, by_backend)] == [("cmake", "ninja"), (), ()]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"setup.py": "import torch, subprocess\nsubprocess.run(['nvidia-smi'])\n"},
         "setup.py:2 asks for a GPU (nvidia-smi)"),
        # A build answers this question, so it is not the cause.
        ({"setup.py": "import torch, os\nif torch.cuda.is_available(): os.getenv('A_EXT')\n"},
         "setup.py:2 reads A_EXT"),
        ({"setup.py": "pass\n"}, "its build scripts name no switch for it"),
        ({"setup.py": "(\n"}, "its build scripts name no switch for it"),
    ],
)  # fmt: skip
def test_why_a_build_may_have_compiled_nothing(tmp_path, files, why):
    write(tmp_path / "read", {"setup.py": ""})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert why_empty(tmp_path) == f"no .cu was compiled: {why}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"def (:\n", r"setup\.py:1: expected Python 3\.\d+, found: "),
        (b"print 'two'\n", r"setup\.py:1: expected Python"),
        (b"a = '\x00'\n", r"expected Python 3\.\d+, found: "),
        (b"\xff\xfe = 1\n", r"expected Python 3\.\d+, found: "),
        (b"(" * 5000 + b")" * 5000, r"expected|nested too deep"),
        (b"x = " + b"-" * 100_000 + b"1\n", r"expected|nested too deep"),
        (b"#" * (LARGEST + 1), rf"found more than {LARGEST} bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, content, says):
    (tmp_path / "setup.py").write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        read_scripts(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


_PIECES = st.sampled_from([
    "setup(", ")", "name=", "'a'", "CUDAExtension(", "[", "]", ",", "\n", "if x >= '12.8':\n ",
    "x", "=", "os.getenv('A')", "f'{x}'", "os.environ[", "'-arch=sm_90'", "+", "{", "}", ":", "*",
    "'py_limited_api'", "Version(", "(1, 2)", "for x in y:\n ", "-", "lambda: ", "not ", "== '1'",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=40))
def test_any_text_is_read_or_refused(pieces):
    content = "".join(pieces).encode()
    try:
        search_setup(content)
    except UsageError as error:
        lines = str(error).splitlines()
    else:
        lines = ["read"]
    assert len(lines) == 1
