"""What is read of a setup.py without running it."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.errors import UsageError
from torchwheel.scaffold.setup_script import LARGEST, facts_of, read_setup

HEAD = """\
import os
import os.path as osp
import glob
from pathlib import Path
from setuptools import setup, find_packages
from packaging.version import Version, parse
import torch
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension
"""


@pytest.fixture
def read(tmp_path):
    def facts(text):
        return facts_of((HEAD + textwrap.dedent(text)).encode(), tmp_path)

    return facts


def archs(facts, release="13.0"):
    return [str(one.arch) for one in facts.archs if one.is_for(release)]


def test_it_is_never_run(tmp_path):
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\n"
        "open('ran', 'w')\nraise SystemExit(input('continue? '))\nsetup(name='demo')\n"
    )
    assert read_setup(tmp_path).name == "demo"
    assert [path.name for path in tmp_path.iterdir()] == ["setup.py"]


def test_an_extension_with_its_sources(read, tmp_path):
    (tmp_path / "csrc").mkdir()
    for name in ("b.cu", "a.cu", "c.cpp"):
        (tmp_path / "csrc" / name).touch()
    facts = read("""
        here = Path(__file__).resolve().parent
        NAME = "demo"
        setup(
            name=NAME,
            ext_modules=[
                CUDAExtension(f"{NAME}._C", ["csrc/c.cpp", *glob.glob(osp.join("csrc", "*.cu"))]),
                CppExtension(name=NAME + "._cpu", sources=["csrc/c.cpp"]),
            ],
        )
    """)
    assert [(one.kind, one.name, one.sources) for one in facts.extensions] == [
        ("CUDAExtension", "demo._C", ("csrc/c.cpp", "csrc/a.cu", "csrc/b.cu")),
        ("CppExtension", "demo._cpu", ("csrc/c.cpp",)),
    ]
    assert facts.name == "demo"
    assert facts.unread == ()


def test_what_only_a_run_tells_is_said_with_its_line(read):
    facts = read("""
        def extensions():
            for suffix in ("cpu", "cuda"):
                E = CppExtension if suffix == "cpu" else CUDAExtension
                yield E(f"demo._{suffix}", sources=[suffix + ".cpp"])
        setup(name=open("NAME").read(), ext_modules=list(extensions()))
    """)
    (extension,) = facts.extensions
    assert (extension.kind, extension.name, extension.sources) == ("CUDAExtension", None, None)
    assert list(map(str, facts.unread)) == [
        "setup.py:13: the name of a CUDAExtension is not spelled out",
        "setup.py:13: the sources of a CUDAExtension are not spelled out",
        "setup.py:14: name of setup() is not spelled out",
    ]


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
def test_archs_in_compiler_flags(read, flags, found):
    assert archs(read(f"flags = [{flags}]\n")) == found


def test_archs_for_some_releases_of_cuda(read):
    facts = read("""
        flags = ["-gencode", "arch=compute_80,code=sm_80"]
        if bare_metal >= Version("11.8"):
            flags += ["-gencode", "arch=compute_90,code=sm_90"]
        if CUDA >= (12, 8) and not SKIP:
            flags += ["-gencode", "arch=compute_120,code=sm_120"]
        else:
            flags += ["-gencode", "arch=compute_70,code=sm_70"]
        if CUDA < "13.0":
            flags += ["-gencode", "arch=compute_60,code=sm_60"]
    """)
    assert archs(facts, "11.4") == ["8.0", "7.0", "6.0"]
    assert archs(facts, "12.4") == ["8.0", "9.0", "7.0", "6.0"]
    assert archs(facts, "13.0") == ["8.0", "9.0", "12.0"]
    assert facts.unread == ()


def test_archs_that_a_loop_makes_are_not_read(read):
    facts = read("""
        flags = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 90)]
    """)
    assert facts.archs == ()
    assert [one.text for one in facts.unread] == ["an arch of -gencode is not spelled out"]


def test_a_text_that_is_no_flag_has_no_archs(read):
    assert read('"""Builds with code=sm_80 by default."""\n').archs == ()


@pytest.mark.parametrize(
    ("line", "name", "on", "forces"),
    [
        ('os.getenv("DEMO_FORCE_BUILD", "FALSE") == "TRUE"', "DEMO_FORCE_BUILD", "TRUE", True),
        ('os.environ.get("FORCE_CUDA", "0") == "1"', "FORCE_CUDA", "1", True),
        ('os.environ["FORCE_CUDA"]', "FORCE_CUDA", "1", True),
        ('os.getenv("FORCE_CUDA", "OFF").upper() in ("ON", "1")', "FORCE_CUDA", "ON", True),
        ('bool(int(os.getenv("FORCE_ONLY_CPU", "0")))', "FORCE_ONLY_CPU", "1", False),
        (
            'os.getenv("DEMO_FORCE_CXX11_ABI", "FALSE") == "TRUE"',
            "DEMO_FORCE_CXX11_ABI",
            "TRUE",
            False,
        ),
        ('os.getenv("MAX_JOBS")', "MAX_JOBS", "1", False),
        ('os.getenv("DEMO_SKIP_CUDA_BUILD", "no")', "DEMO_SKIP_CUDA_BUILD", "yes", False),
    ],
)
def test_variables_and_what_turns_them_on(read, line, name, on, forces):
    (found,) = read(f"value = {line}\n").variables
    assert (found.name, found.on, found.forces) == (name, on, forces)


def test_requirements_modules_packages(read):
    facts = read("""
        try:
            import rich
        except ImportError:
            rich = None
        import numpy as np
        needs = ["torch>=2.4", "einops"]
        setup(
            install_requires=needs,
            extras_require={"test": ["pytest", "scipy"]},
            python_requires=">=3.9",
            packages=find_packages("python", exclude=["tests"]),
            cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
        )
    """)
    assert facts.modules == ("numpy", "packaging", "setuptools", "torch")
    assert facts.requires == ("torch>=2.4", "einops")
    assert facts.extras == ("pytest", "scipy")
    assert facts.python == ">=3.9"
    assert facts.where == "python"
    assert not facts.ninja


def test_a_variable_that_changes_is_no_constant(read):
    facts = read("""
        name = "a"
        name = "b"
        needs = ["torch"]
        needs.append("numpy")
        setup(name=name, install_requires=needs)
    """)
    assert facts.name is None
    assert facts.requires == ()
    assert len(facts.unread) == 2


@pytest.mark.parametrize(
    "pattern", ["../*.cu", "/etc/*", "a/../../*"], ids=["above", "elsewhere", "around"]
)
def test_no_file_outside_the_project_is_looked_for(read, pattern):
    facts = read(f'setup(ext_modules=[CUDAExtension("a", glob.glob({pattern!r}))])\n')
    assert facts.extensions[0].sources is None


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
    "x", "=", "os.getenv('A')", "f'{x}'", "glob.glob(", "'-arch=sm_90'", "+", "{", "}", ":", "*",
    "'py_limited_api'", "Version(", "(1, 2)", "for x in y:\n ", "-", "lambda: ", "not ", "== '1'",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=40))
def test_any_text_is_read_or_refused(tmp_path_factory, pieces):
    content = "".join(pieces).encode()
    try:
        facts_of(content, tmp_path_factory.getbasetemp())
    except UsageError as error:
        lines = str(error).splitlines()
    else:
        lines = ["read"]
    assert len(lines) == 1
