"""A small foreign extension, as others write them; its setup.py must never be run to be read."""

from pathlib import Path

SETUP = """\
import os
from setuptools import setup, find_packages
from packaging.version import Version
import torch
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

FORCE_BUILD = os.getenv("DEMO_FORCE_BUILD", "FALSE") == "TRUE"
if not FORCE_BUILD and not os.getenv("DEMO_NO_QUESTIONS"):
    input("download a wheel? ")

flags = ["-O3", "-gencode", "arch=compute_80,code=sm_80"]
if torch.version.cuda and Version(torch.version.cuda) >= Version("12.8"):
    flags += ["-gencode", "arch=compute_120,code=[sm_120,compute_120]"]
if torch.version.cuda and Version(torch.version.cuda) < Version("13.0"):
    flags += ["-gencode", "arch=compute_60,code=sm_60"]

setup(
    name="foreign_demo",
    version="1.2",
    python_requires=">=3.11",
    install_requires=["torch>=2.6", "einops"],
    packages=find_packages(exclude=["tests"]),
    ext_modules=[
        CUDAExtension("foreign_demo._C", ["csrc/demo.cu"], extra_compile_args={"nvcc": flags})
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
FILES = {
    "setup.py": SETUP,
    "pyproject.toml": '[build-system]\nrequires = ["setuptools", "wheel", "torch"]\n'
    'build-backend = "setuptools.build_meta"\n',
    "foreign_demo/__init__.py": "from foreign_demo import _C\n",
    "csrc/demo.cu": "__global__ void demo() {}\n",
    "tests/test_demo.py": "import einops\nimport numpy\nimport foreign_demo\nimport torch\n",
    ".gitignore": "*.whl\n*.so\n",
}


def write_foreign_project(folder: Path, **changed: str) -> Path:
    """Write the project into `folder`; `changed` gives setup.py another text."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(changed.get(file.stem, text) if name == "setup.py" else text)
    return folder


_LIMITED = "class Wheel(bdist_wheel):\n    def finalize_options(self):\n"
_LIMITED += "        super().finalize_options()\n        self.py_limited_api = 'cp39'\n"
_TAGGED = "class Wheel(bdist_wheel):\n    def get_tag(self):\n"
_TAGGED += "        python, abi, platform = super().get_tag()\n        return {}, platform\n"
_WHEEL = "cmdclass={'bdist_wheel': Wheel}"
_PYPROJECT = "[project]\nname = 'tagged'\nversion = '1'\n[tool.distutils.bdist_wheel]\n"
CODE = frozenset(
    {
        *("options of a variable", "options of a key", "a command", "a command's abi3"),
        *("a command goes before setup.cfg", "a command's none"),
    }
)
"""The forms in which code decides the tag; it is a TODO then."""
# The ways in which a project says the tag of its wheels, and the tag: what stands before setup(),
# an argument of it, and another file with its text.
TAG_FORMS = {
    "nothing": ("", "", "", "", ""),
    "options": ("", "options={'bdist_wheel': {'py_limited_api': 'cp39'}}", "", "", "cp39"),
    "options under a condition": (
        "limited = True\n",
        "options={'bdist_wheel': {'py_limited_api': 'cp39'}} if limited else {}",
        *("", ""),
        "cp39",
    ),
    "options of a variable": (
        "API = 'cp39'\noptions = {}\noptions['bdist_wheel'] = dict(py_limited_api=API)\n",
        "options=options",
        *("", ""),
        "cp39",
    ),
    "options of a key": (
        "options = {'bdist_wheel': {}}\noptions['bdist_wheel']['py_limited_api'] = 'cp310'\n",
        "options=options",
        *("", ""),
        "cp310",
    ),
    "setup.cfg": ("", "", "setup.cfg", "[bdist_wheel]\npy_limited_api = cp39\n", "cp39"),
    "setup.cfg goes before options": (
        "",
        "options={'bdist_wheel': {'py_limited_api': 'cp310'}}",
        "setup.cfg",
        "[bdist_wheel]\npy-limited-api = cp39\n",
        "cp39",
    ),
    "pyproject.toml": ("", "", "pyproject.toml", _PYPROJECT + "py_limited_api = 'cp39'\n", "cp39"),
    "pyproject.toml without a project": (
        *("", "", "pyproject.toml"),
        "[tool.distutils.bdist_wheel]\npy_limited_api = 'cp39'\n",
        "",
    ),
    "pyproject.toml goes before options": (
        "",
        "options={'bdist_wheel': {'py_limited_api': 'cp310'}}",
        "pyproject.toml",
        _PYPROJECT.replace("_wheel]", "-wheel]") + "py-limited-api = 'cp39'\n",
        "cp39",
    ),
    "a command": (_LIMITED, _WHEEL, "", "", "cp39"),
    "a command goes before setup.cfg": (
        _LIMITED,
        _WHEEL,
        "setup.cfg",
        "[bdist_wheel]\npy_limited_api = cp310\n",
        "cp39",
    ),
    "a command's abi3": (_TAGGED.format("'cp39', 'abi3'"), _WHEEL, "", "", "cp39"),
    "a command's none": (_TAGGED.format("'py3', 'none'"), _WHEEL, "", "", "py3"),
    # Without effect where there is an extension.
    "universal": ("", "", "setup.cfg", "[bdist_wheel]\nuniversal = 1\n", ""),
    "python_tag": ("", "options={'bdist_wheel': {'python_tag': 'py3'}}", "", "", ""),
    "an extension alone": ("limited = True\n", "", "", "", ""),
}
_TAGGED_C = """\
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tagged", 0, -1};
PyMODINIT_FUNC PyInit_tagged(void) { return PyModule_Create(&module); }
"""


def write_tagged_project(folder: Path, form: str) -> str:
    """Write a small project that says its tag in a form; returns the Python of its wheel, or ""."""
    before, argument, name, text, tag = TAG_FORMS[form]
    limited = ", py_limited_api=True" if "limited" in before else ""
    (folder / "tagged.c").write_text(_TAGGED_C)
    (folder / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "from setuptools.command.bdist_wheel import bdist_wheel\n"
        f"{before}setup(name='tagged', version='1', {argument + ',' if argument else ''}\n"
        f"    ext_modules=[Extension('tagged', ['tagged.c']{limited})])\n"
    )
    if name:
        (folder / name).write_text(text)
    return tag
