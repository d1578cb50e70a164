"""What a build takes of the project's own files: its matrix.yaml, or archs of its setup.py."""

import dataclasses
import os

import pytest

from torchwheel.matrix.document import MatrixError
from torchwheel.sdist.project_settings import read_settings
from torchwheel.sdist.request import SdistRequest
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.errors import UsageError

MATRIX = """\
schema: 1
project: {name: demo, source: .}
abis: {ordinary: {}}
build:
  requires: [numpy]
  environment: {DEMO_FORCE_BUILD: "TRUE", LEVEL: "1"}
  toolkit_environment: {cu130: {LEVEL: "2"}}
  config_settings: {--build-option: --fast}
  imports: [demo.ops]
  archs_by: declared
  allow: [{gate: content, library: "*", reason: it is mine}]
toolkits:
  cu130: {backend: cuda, version: "13.0", abis: [ordinary], archs: ["8.0", "9.0+PTX"], source: pypi}
torch: {"2.13": {toolkits: [cu130], pythons: ["3.11"]}}
platforms: [linux_x86_64]
"""
CU130 = ToolkitRelease("cuda", "13.0")
SETUP = "from setuptools import setup\n"


@pytest.fixture
def read(tmp_path):
    """The settings of a project with these files."""

    def read(matrix: str = "", setup: str = SETUP, cmake: str = ""):
        if matrix == "pipe":
            os.mkfifo(tmp_path / "matrix.yaml")
            matrix = ""
        for name, text in (
            ("matrix.yaml", matrix),
            ("setup.py", setup),
            ("CMakeLists.txt", cmake),
        ):
            if text:
                (tmp_path / name).write_text(text)
        return read_settings(tmp_path)

    return read


def test_a_matrix_says_archs_variables_requirements_and_settings(tmp_path, read):
    own = read(MATRIX)
    named, by = own.archs(CU130)
    assert (named.text, named.source, by) == ("8.0;9.0+PTX", "matrix.yaml", "declared")
    assert own.variables("cu130") == {"DEMO_FORCE_BUILD": "TRUE", "LEVEL": "2"}
    assert own.variables("") == {"DEMO_FORCE_BUILD": "TRUE", "LEVEL": "1"}
    request = SdistRequest(tmp_path, tmp_path, requires=("scipy",))
    found = own.complete(request)
    assert (found.requires, found.imports) == (("numpy", "scipy"), ("demo.ops",))
    assert found.settings == {"--build-option": "--fast"}
    assert found.limits == request.limits, "a project does not allow what its gates find"
    assert own.says("cu130") == (
        "matrix.yaml of the project: archs 8.0;9.0+PTX (declared), DEMO_FORCE_BUILD=TRUE, LEVEL=2, "
        "--with numpy, --config-setting=--build-option=--fast"
    )
    # Those of another toolkit are torch's own.
    assert own.archs(ToolkitRelease("cuda", "12.8"))[0] is None


def test_the_call_comes_before_the_matrix(tmp_path, read):
    settings = {"--build-option": ["--slow"], "other": "1"}
    request = SdistRequest(tmp_path, tmp_path, imports=("demo",), settings=settings)
    found = read(MATRIX).complete(request)
    assert (found.imports, found.settings) == (("demo",), settings)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pipe",
        "python: [3.11, 3.12]\n",  # another tool's
        "- a\n",
        # One that builds by torchwheel's builder does not say how the own build is called.
        MATRIX.replace("{ordinary: {}}", "{pure: {torch: '2.6'}}").partition("build:")[0]
        + "toolkits: {}\nplatforms: [linux_x86_64]\nsmoke: {torch: '2.13.0', tests: tests}\n",
    ],
)
def test_another_file_of_that_name_says_nothing(tmp_path, read, text):
    own = read(text)
    request = SdistRequest(tmp_path, tmp_path)
    assert own.complete(request) == request
    assert (own.archs(CU130), own.variables("cu130"), own.says("cu130")) == (
        (None, "environment"),
        {},
        "",
    )


def test_a_matrix_that_is_wrong_is_refused(read):
    with pytest.raises(MatrixError, match=r"^matrix\.yaml:13: .*archs\[1\]"):
        read(MATRIX.replace("9.0+PTX", "9.x"))


FLAGS = "flags = ['-gencode', 'arch=compute_{0},code=sm_{0}']\n"


@pytest.mark.parametrize(
    ("setup", "cmake", "archs", "by"),
    [
        (SETUP, "", None, "environment"),
        (FLAGS.format("80") + FLAGS.format("90"), "", "8.0;9.0", "replaced"),
        # Code for one arch alone cannot be compiled for others.
        (FLAGS.format("80") + FLAGS.format("90a"), "", "8.0;9.0a", "declared"),
        # CUDA 13.0 compiles no code for 7.0.
        (FLAGS.format("70") + FLAGS.format("80"), "", "8.0", "replaced"),
        (FLAGS.format("70"), "", None, "replaced"),
        ("import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '8.0'\n", "", None, "replaced"),
        (SETUP, "set(CMAKE_CUDA_ARCHITECTURES 80)\n", None, "replaced"),
        # The build itself will say so.
        ("print 'Python 2'\n", "", None, "environment"),
    ],
)
def test_archs_that_a_project_hard_codes_are_known_before_it_compiles(
    read, setup, cmake, archs, by
):
    named, found = read(setup=setup, cmake=cmake).archs(CU130)
    assert (named and named.text, found) == (archs, by)


@pytest.mark.parametrize(
    ("setup", "wanted", "says"),
    [
        (SETUP, "9.0", ""),
        (
            FLAGS.format("80"),
            "9.0",
            "setup.py hard-codes the archs 8.0: nvcc gets 9.0 in their place",
        ),
        (FLAGS.format("80"), "8.0", "setup.py hard-codes the archs 8.0: nvcc gets these"),
        (
            FLAGS.format("90a"),
            "9.0a;10.0",
            "setup.py hard-codes the archs 9.0a: it is built for 9.0a;10.0",
        ),
    ],
)
def test_a_line_says_what_becomes_of_hard_coded_archs(read, setup, wanted, says):
    assert read(setup=setup).check_archs(CU130, wanted) == says


def test_archs_that_its_code_needs_are_asked_for_before_anything_compiles(read):
    own = read(setup=FLAGS.format("90a"))
    says = r"setup\.py: the project compiles for 9\.0a, which the arch list 8\.0 lacks; .*replaced$"
    with pytest.raises(UsageError, match=says):
        own.check_archs(CU130, "8.0")
    assert dataclasses.replace(own, script=None).check_archs(CU130, "8.0") == ""
