"""What an image's linker and headers are told, so that wheels keep to an older C library."""

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest

from torchwheel.data import FOLDER
from torchwheel_runtime.inspect.elf import read_library

SCRIPT = FOLDER / "docker" / "glibc-limit.py"
CODE = """
#include <cmath>
extern "C" double all(double x) { return exp(x) + exp2(x) + log(x) + log2(x) + pow(x, x); }
"""
CONFIG = "#define _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT 1\n#define _GLIBCXX_USE_WCHAR_T 1\n"


@pytest.fixture
def system(tmp_path):
    """A folder with this system's libm, and a header of libstdc++'s."""
    found = ctypes.util.find_library("m")
    maps = Path("/proc/self/maps").read_text()
    paths = [Path(line.split()[-1]) for line in maps.splitlines() if line.endswith(f"/{found}")]
    if not paths:
        ctypes.CDLL(found)
        maps = Path("/proc/self/maps").read_text()
        paths = [Path(line.split()[-1]) for line in maps.splitlines() if line.endswith(f"/{found}")]
    folder = tmp_path / "usr/lib/any-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libm.so").write_bytes(paths[0].read_bytes())
    header = tmp_path / "usr/include/any-linux-gnu/c++/12/bits/c++config.h"
    header.parent.mkdir(parents=True)
    header.write_text(CONFIG)
    return tmp_path


def versions(system):
    """What a library that is linked there needs of each function."""
    source, library = system / "all.cpp", system / "all.so"
    source.write_text(CODE)
    command = ["g++", "-shared", "-fPIC", "-fno-builtin", str(source), "-o", str(library)]
    folder = system / "usr/lib/any-linux-gnu"
    subprocess.run([*command, f"-L{folder}", "-lm"], check=True)
    names = ("exp", "exp2", "log", "log2", "pow")
    undefined = read_library(library, "all.so").undefined
    return {symbol.version for symbol in undefined if symbol.name in names}


@pytest.mark.parametrize(("limit", "kept"), [("2.28", False), ("2.29", True)])
def test_functions_are_linked_as_an_older_c_library_has_them(system, limit, kept):
    assert versions(system) == {"GLIBC_2.29"}
    subprocess.run([sys.executable, str(SCRIPT), limit, str(system)], check=True)
    assert (versions(system) == {"GLIBC_2.29"}) is kept
    # Other functions are as they were, totalorder too: an older one takes other arguments.
    (header,) = system.rglob("c++config.h")
    assert "/* _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT */\n#define _GLIBCXX_USE_W" in header.read_text()
    loaded = ctypes.CDLL(str(system / "all.so")).all
    loaded.restype, loaded.argtypes = ctypes.c_double, [ctypes.c_double]
    assert loaded(1.0) == pytest.approx(2.718281828 + 2 + 0 + 0 + 1)
