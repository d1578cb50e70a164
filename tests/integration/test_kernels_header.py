"""<torchwheel/kernels.h>: kernels of libraries that are chosen at run time, or linked in."""

import ctypes
import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from torchwheel_runtime.builder import recipe

pytestmark = pytest.mark.integration
PART = Path(recipe.__file__).with_name("part.map")
FLAGS = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"]
HEADER = """
#pragma once
#include <torchwheel/kernels.h>
namespace mine {
int add(int x);
int other(int x);
}
"""
KERNELS = """
#include "mine.h"
namespace mine {
int add(int x) { return x + ADDS; }
TORCHWHEEL_EXPORT(add)
}
"""
OTHER = """
#include "mine.h"
namespace mine {
int other(int x) { return -x; }
TORCHWHEEL_EXPORT(other)
}
"""
# Two files: both have the header's functions.
CALLS = """
#include <cstdio>
#include <stdexcept>
#include "mine.h"
int call_other(int gpu, int x);
namespace mine {
int call_add(int gpu, int x) { return TORCHWHEEL_KERNEL(gpu, add)(x); }
}
extern "C" __attribute__((visibility("default"))) int torchwheel_call(
    int gpu, int x, bool other, char* error) {
  try {
    return other ? call_other(gpu, x) : mine::call_add(gpu, x);
  } catch (const std::runtime_error& failed) {
    std::snprintf(error, 200, "%s", failed.what());
    return -1;
  }
}
"""
CALLS_OTHER = """
#include "mine.h"
int call_other(int gpu, int x) { return (*torchwheel::kernel<&mine::other>(gpu, "other"))(x); }
"""


def library(folder: Path, name: str, *sources: str, flags: tuple[str, ...] = ()) -> Path:
    (folder / "mine.h").write_text(HEADER)
    files = []
    for at, source in enumerate(sources):
        files.append(folder / f"{name}_{at}.cpp")
        files[-1].write_text(source)
    path = folder / f"{name}.so"
    subprocess.run(
        ["g++", "-shared", *FLAGS, f"-I{recipe.INCLUDE}", f"-Wl,--version-script={PART}", *flags]
        + ["-Wl,--gc-sections", *files, "-ldl", "-o", path],
        check=True,
    )
    return path


def front_end(folder: Path, package: str, *flags: str) -> Path:
    told = ("-DTORCHWHEEL_FRONT_END", f'-DTORCHWHEEL_PACKAGE="{package}"')
    return library(folder, package, CALLS, CALLS_OTHER, flags=(*told, *flags))


@dataclasses.dataclass
class Loaded:
    """A library that makes calls, in this process."""

    library: ctypes.CDLL

    def use(self, gpu: int, kernels: ctypes.CDLL) -> bool:
        use = self.library.torchwheel_use_kernels
        use.argtypes, use.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_bool
        return use(gpu, kernels._handle)

    def call(self, gpu: int, x: int, *, other: bool = False) -> int | str:
        error = ctypes.create_string_buffer(200)
        result = self.library.torchwheel_call(gpu, x, other, error)
        return error.value.decode() or result


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    return {
        "first": front_end(folder, "first"),
        "second": front_end(folder, "second"),
        "adds1": library(folder, "adds1", KERNELS, flags=("-DADDS=1",)),
        "adds2": library(folder, "adds2", KERNELS, OTHER, flags=("-DADDS=2",)),
    }


def test_each_gpu_and_each_front_end_has_its_own_kernels(built):
    """Even where the symbols of one library are seen by the next."""
    first, second = (
        Loaded(ctypes.CDLL(str(built[name]), mode=ctypes.RTLD_GLOBAL))
        for name in ("first", "second")
    )
    adds1, adds2 = (ctypes.CDLL(str(built[name])) for name in ("adds1", "adds2"))
    assert first.call(0, 10) == "first: no kernel library for cuda:0"
    assert first.use(0, adds1)
    assert first.use(1, adds2)
    assert second.use(0, adds2)
    for _ in range(2):  # looked up, and remembered
        assert [first.call(0, 10), first.call(1, 10), second.call(0, 10)] == [11, 12, 12]
    assert second.call(1, 10) == "second: no kernel library for cuda:1"
    # A second library of a GPU has what the first one lacks.
    assert first.call(0, 10, other=True) == "first: no kernel library for cuda:0 has other"
    assert first.use(0, adds2)
    assert [first.call(0, 10, other=True), first.call(0, 10)] == [-10, 11]


@pytest.mark.parametrize("gpu", [-1, 64])
def test_a_number_that_no_gpu_has_is_refused(built, gpu):
    first, adds1 = (ctypes.CDLL(str(built[name])) for name in ("first", "adds1"))
    assert not Loaded(first).use(gpu, adds1)
    assert Loaded(first).call(gpu, 1) == f"first: no kernel library for cuda:{gpu}"


def test_in_one_library_it_is_a_plain_call(tmp_path):
    whole = library(tmp_path, "whole", KERNELS, OTHER, CALLS, CALLS_OTHER, flags=("-DADDS=3",))
    loaded = ctypes.CDLL(str(whole))
    assert [Loaded(loaded).call(5, 10), Loaded(loaded).call(5, 10, other=True)] == [13, -10]
    assert not hasattr(loaded, "torchwheel_use_kernels")


def test_a_front_end_of_old_strings_needs_the_libstdcxx_of_gcc_4_8(tmp_path):
    """It shares torch's: with its own, torch 2.6 aborts."""
    path = front_end(tmp_path, "old", "-D_GLIBCXX_USE_CXX11_ABI=0", "-fno-sized-deallocation")
    symbols = subprocess.run(
        ["readelf", "-W", "--dyn-syms", path], check=True, capture_output=True, text=True
    ).stdout
    needed = {
        tuple(map(int, found.split("."))) for found in re.findall(r"GLIBCXX_([\d.]+)", symbols)
    }
    assert needed
    assert max(needed) <= (3, 4, 19)


PLAIN = """
#include <torchwheel/kernels.h>
#include <cstdint>
#include <optional>
#include <string>
enum class Kind { one };
struct Sizes { std::int64_t rows; double eps; Kind kind; };
struct Declared;
struct Virtual { virtual ~Virtual(); };
"""


CROSSES = [
    ("int f(const Sizes& sizes, void* y, const float* const* all, bool& set, Kind kind)", True),
    ("Sizes f(Sizes sizes, const Sizes* more, const Declared* handle) noexcept", True),
    ("void f()", True),
    ("void f(void (*call)(void*), void* to)", True),
    ("void f(const std::string& name)", False),
    ("void f(const std::string* name)", False),
    ("std::string f()", False),
    ("void f(std::optional<std::string> name) noexcept", False),
    ("void f(Virtual& object)", False),
]


@pytest.mark.parametrize(("function", "crosses"), CROSSES)
def test_what_an_exported_function_may_take_and_return(function, crosses, tmp_path):
    source = tmp_path / "one.cpp"
    source.write_text(f"{PLAIN}{function};\nTORCHWHEEL_EXPORT(f)\n", encoding="utf-8")
    command = ["g++", *FLAGS, "-I", str(recipe.INCLUDE), "-fsyntax-only", str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) is crosses, done.stderr
    assert crosses or "f: expected numbers, pointers and structs that are copied" in done.stderr


@pytest.mark.parametrize("crosses", [True, False])
def test_nvcc_says_the_same(crosses, nvcc, tmp_path):
    functions = [function for function, known in CROSSES if known is crosses]
    source = tmp_path / "all.cu"
    lines = [PLAIN]
    for number, function in enumerate(functions):
        name = f"f{number}"
        lines += [f"{function.replace('f(', f'{name}(', 1)};", f"TORCHWHEEL_EXPORT({name})"]
    source.write_text("\n".join(lines), encoding="utf-8")
    command = [nvcc, "-std=c++17", "-I", str(recipe.INCLUDE), "--cuda", str(source)]
    command += ["-o", str(tmp_path / "all.ii")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    refused = re.findall(r"error: .*(f\d): expected numbers", done.stderr)
    assert refused == ([] if crosses else [f"f{n}" for n in range(len(functions))]), done.stderr
    assert (done.returncode == 0) is crosses, done.stderr
