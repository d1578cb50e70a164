"""The bundles in a section: right, packed, bent, and with sizes that only a file claims."""

import contextlib
import dataclasses
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elfmaker import code_object, make_bundle, packed
from torchwheel_runtime.inspect import hip
from torchwheel_runtime.inspect.window import WheelError, Window

CODES = {"gfx90a": code_object(), "gfx942": code_object(0x54C)}


# The place of the second code object, and that of the first.
SECOND_IN_FIRST = (
    struct.pack("<QQ", 8192, len(CODES["gfx942"])),
    struct.pack("<QQ", 4096, len(CODES["gfx942"])),
)


def bundles(section: bytes) -> list[hip.BundleEntry]:
    return list(hip.read_bundles(Window.of_bytes(section)))


@pytest.mark.parametrize("version", [2, 3])
def test_packed_is_read_as_plain(version: int) -> None:
    one = make_bundle(CODES)
    entries = bundles(one)
    assert [entry.name.rpartition("-")[2] for entry in entries] == ["", "gfx90a", "gfx942"]
    second = [dataclasses.replace(entry, bundle=2) for entry in entries]
    assert bundles(packed(one, version=version) + bytes(100) + one) == [*entries, *second]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (b"text", r"bundle 1 \(byte 0\): starts with b'text'"),
        (make_bundle(CODES) + b"\0more", r"bundle 2 \(byte \d+\): starts with b'more'"),
        (make_bundle(CODES)[:-5000], "leads out of it"),
        (make_bundle(CODES)[:40], "cut short"),
        (hip.MAGIC, "cut short"),
        (hip.MAGIC + bytes(8) + b"more", "0 entries; 1 to 1024"),
        (make_bundle(CODES).replace(*SECOND_IN_FIRST), "into another"),
        (hip.MAGIC + struct.pack("<Q", 1 << 60), "1152921504606846976 entries; 1 to 1024"),
        (hip.MAGIC + struct.pack("<QQQQ", 1, 0, 0, 1 << 40), "leads out of it"),
        (hip.MAGIC + struct.pack("<QQQQ", 1, 1 << 63, 1 << 63, 0), "leads out of it"),
        (b"CCOB", "cut short"),
        (packed(b"", version=7), "version 7; 2 or 3"),
        (packed(b"", method=9), "method 9; 0"),
        (packed(b"x" * 100)[:-3], "cut short"),
        (packed(b"x" * 100, size=99), "does not unpack to the 99 bytes"),
        (packed(b"x" * 100, size=101), "does not unpack to the 101 bytes"),
        (packed(b"x", size=1 << 62), "cut short, or no such bundle"),
        (packed(b"x" * 100), "starts with b'xxxx"),
        (packed(b"")[:-8] + b"12345678", "cannot be unpacked"),
    ],
)
def test_a_bent_section(section: bytes, says: str) -> None:
    with pytest.raises(WheelError, match=says):
        bundles(section)


def test_sizes_that_a_file_only_claims_take_no_memory() -> None:
    bombs = (
        packed(bytes(20 << 20), size=1000),
        packed(bytes(129 << 20)),
        hip.MAGIC + struct.pack("<QQQQ", 9, 0, 1 << 40, 1),
    )
    tracemalloc.start()
    for bomb in bombs:
        with pytest.raises(WheelError):
            bundles(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


@given(st.binary(max_size=300), st.sampled_from([b"", hip.MAGIC, b"CCOB\3\0\0\0", b"CCOB\2\0\1\0"]))
def test_any_bytes_are_bundles_or_one_error(data: bytes, start: bytes) -> None:
    with contextlib.suppress(WheelError):
        bundles(start + data)
