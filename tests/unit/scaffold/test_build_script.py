"""What is read of a setup.py without running it, and what a person is asked."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.scaffold.build_script import LARGEST, read_setup, search_setup
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
    assert read_setup(tmp_path).arguments == {"name": "demo"}
    assert [path.name for path in tmp_path.iterdir()] == ["setup.py"]


_TAG = "code decides the tag of a wheel; fill in abis.ordinary.python"


@pytest.mark.parametrize(
    ("text", "field", "found", "todo"),
    [
        ("setup(name='a', zip_safe=False)", "arguments", {"name": "a", "zip_safe": False}, []),
        ("setup(name=NAME)", "code", {"name": "setup.py:7"}, []),
        ("setup(name=f())\nsetup(name='b')", "arguments", {"name": "b"},
         ["setup.py:8: setup() is called more than once; the last call was read"]),
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
    ("line", "name", "on", "forces", "guess"),
    [
        ('os.getenv("A_FORCE_BUILD", "FALSE") == "TRUE"', "A_FORCE_BUILD", "TRUE", True, False),
        ('os.environ.get("FORCE_CUDA", "0") == "1"', "FORCE_CUDA", "1", True, False),
        ('os.environ["FORCE_CUDA"]', "FORCE_CUDA", "1", True, True),
        ('"FORCE_CUDA" in os.environ', "FORCE_CUDA", "1", True, True),
        ('getenv("FORCE_CUDA", OFF) == "ON"', "FORCE_CUDA", "1", True, True),
        ('os.getenv("FORCE_CUDA", "OFF").upper() in ("ON", "1")', "FORCE_CUDA", "ON", True, False),
        ('bool(int(os.getenv("FORCE_ONLY_CPU", "0")))', "FORCE_ONLY_CPU", "1", False, False),
        ('os.getenv("A_FORCE_CXX11_ABI", "FALSE")', "A_FORCE_CXX11_ABI", "TRUE", False, False),
        ('os.getenv("MAX_JOBS")', "MAX_JOBS", "1", False, True),
        ('os.getenv("A_SKIP_CUDA_BUILD", "no")', "A_SKIP_CUDA_BUILD", "yes", False, False),
    ],
)
def test_variables_and_what_turns_them_on(line, name, on, forces, guess):
    (found,) = read(f"value = {line}\n").variables
    assert (str(found), found.on, found.forces) == (f"{name} (setup.py:7)", on, forces)
    assert found.is_guess == guess


def test_a_variable_that_is_read_twice_is_named_once_with_its_default():
    twice = read('if "FORCE_CUDA" in os.environ: pass\nos.getenv("FORCE_CUDA", "OFF")\n')
    (variable,) = twice.variables
    assert (str(variable), variable.on) == ("FORCE_CUDA (setup.py:7)", "ON")


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
        read_setup(tmp_path)
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
