"""What is made of a library's symbols; reading real libraries is an integration test."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchwheel_runtime.inspect.elf import (
    Library,
    UndefinedSymbol,
    glibc_floor,
    read_library,
    versions_needed,
)
from torchwheel_runtime.inspect.window import WheelError


def library(*undefined: UndefinedSymbol) -> Library:
    return Library("demo/_C.so", "x86_64", None, (), undefined)


SYMBOLS = (
    UndefinedSymbol("dlsym", version="GLIBC_2.34", library="libc.so.6"),
    UndefinedSymbol("dlopen", version="GLIBC_2.34", library="libc.so.6"),
    UndefinedSymbol("malloc", version="GLIBC_2.2.5", library="libc.so.6"),
    UndefinedSymbol("_ZSt4cout", version="GLIBCXX_3.4.99", library="libstdc++.so.6"),
    UndefinedSymbol("secret", version="GLIBC_PRIVATE", library="libc.so.6"),
    UndefinedSymbol("torch_x"),
)


def test_the_floor_is_compared_as_numbers() -> None:
    assert glibc_floor(library(*SYMBOLS)) == "2.34"
    assert glibc_floor(library(UndefinedSymbol("x"))) is None


def test_versions_by_library() -> None:
    assert versions_needed(library(*SYMBOLS)) == {
        "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_PRIVATE"),
        "libstdc++.so.6": ("GLIBCXX_3.4.99",),
    }


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_library_or_one_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"\x7fELF" + data)
    with contextlib.suppress(WheelError):
        assert read_library(path, "demo/x.so").name == "demo/x.so"


def test_a_text_is_no_elf_file(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("text")
    with pytest.raises(WheelError, match="not an ELF file"):
        read_library(tmp_path / "x.so")
