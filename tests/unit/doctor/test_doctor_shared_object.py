"""A malformed ELF file is one error, whatever is wrong in it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elfmaker import make_elf
from torchwheel.doctor import loader
from torchwheel.inspect.window import WheelError

WHOLE = make_elf(symbols=("f", "g"), sections={".gnu.hash": bytes(64), ".dynamic": bytes(64)})


def test_one_without_a_dynamic_section_asks_for_nothing(tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(make_elf(symbols=("f",)))
    found = loader.read_shared_object(path)
    assert (found.soname, found.needed, found.rpath, found.runpath) == ("x.so", (), (), ())
    assert loader.provided_symbols(path, ["f"]) == frozenset()
    assert loader.provided_versions(path) == frozenset()


@pytest.mark.parametrize("data", [b"", b"\x7fELF", WHOLE[:100]])
def test_one_that_is_cut_short(tmp_path, data):
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(WheelError, match=r"x\.so: not an ELF file"):
        loader.read_shared_object(path)


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8))
def test_no_bytes_bring_it_down(tmp_path_factory, at, change):
    path = tmp_path_factory.mktemp("elf") / "x.so"
    path.write_bytes(WHOLE[:at] + change + WHOLE[at + len(change) :])
    with contextlib.suppress(WheelError):
        loader.read_shared_object(path)
    with contextlib.suppress(WheelError):
        loader.provided_symbols(path, ["f"])
    with contextlib.suppress(WheelError):
        loader.provided_versions(path)
