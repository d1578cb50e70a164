"""What crosses from a kernel library: no exception, and nothing of the C++ library.

The types of exported functions are checked where they are compiled (<torchwheel/kernels.h>).
"""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[3] / "csrc"
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
