"""Each family's own kernel library has every kernel that its operators and checks call.

A build at first use makes such a library. One that lacks a kernel would fail at a call on a GPU.
That the host side of a family is whole is the word of integration/test_jit_families.py.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fusedops.extension import EXTENSION

CSRC = Path(__file__).parents[3] / "csrc"
SPLIT = EXTENSION.split


def files(globs: Iterable[str]) -> Iterator[Path]:
    for pattern in globs:
        yield from CSRC.glob(pattern)


def with_headers(paths: Iterable[Path]) -> set[Path]:
    """The files, and the headers of csrc that they include."""
    found: set[Path] = set()
    queue = list(paths)
    while queue:
        path = queue.pop()
        if path not in found:
            found.add(path)
            names = re.findall(r'^#include "([\w./]+)"', path.read_text(), re.MULTILINE)
            queue += [CSRC / name for name in names if (CSRC / name).is_file()]
    return found


CALL = re.compile(r"\w_KERNEL\([^;]*?, (\w+)\)")
EXPORT = re.compile(r"^\w+_EXPORT\((\w+)\)", re.MULTILINE)


def named(macro: re.Pattern[str], paths: Iterable[Path]) -> set[str]:
    """The kernels that the macro names, outside its definition."""
    text = "".join(re.sub(r"(?m)^#define.*(\\\n.*)*", "", path.read_text()) for path in paths)
    return set(macro.findall(text))


@pytest.mark.parametrize("family", EXTENSION.operators, ids=lambda family: family.name)
def test_a_family_has_the_kernels_that_it_calls(family):
    host = (*EXTENSION.host, *family.host, *family.bindings["stable"], *family.bindings["aten"])
    called = named(CALL, with_headers(files(set(host) - set(SPLIT.kernels))))
    exported = named(EXPORT, files((*family.device, *SPLIT.kernels)))
    assert called
    assert called <= exported


def test_a_kernel_of_another_family_is_seen():
    gemm = EXTENSION.operator("gemm")
    called = named(CALL, with_headers(files(gemm.host)))
    assert {"is_capturing", "fill_with_nan"} <= called
    assert "bias_act" not in named(EXPORT, files(EXTENSION.operator("softmax").device))


# What crosses from a kernel library: no exception, and nothing of the C++ library. The types of
# exported functions are checked where they are compiled (<torchwheel/kernels.h>).

SOURCES = sorted([*(CSRC / "kernels").iterdir(), *(CSRC / "platform").glob("*.h")])
# Functions and types without memory of their own.
HARMLESS = re.compile(
    r"u?int(8|16|32|64|ptr)_t|size_t|clamp|min|max|log2|memcpy|memset|numeric_limits"
    r"|conditional_t|integral_constant|is_\w+_v"
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_kernels_throw_nothing_and_hold_no_object_of_the_library(source):
    code = re.sub(r"//.*", "", source.read_text(encoding="utf-8"))
    assert not re.findall(r"\b(throw|try|catch|new|delete)\b", code)
    used = set(re.findall(r"\bstd::(\w+)", code))
    assert not {name for name in used if not HARMLESS.fullmatch(name)}
