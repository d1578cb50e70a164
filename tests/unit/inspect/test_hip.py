"""Reading HIP code: sections that clang made, bundles and code objects that are bent."""

import contextlib
import dataclasses
import importlib.util
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfmaker import X86_64, code_object, hip_library, make_bundle, make_elf, packed
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.inspect import budgets, hip, packing
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.inspect.hip import read_code_object, read_hip_code
from torchwheel_runtime.inspect.window import WheelError, Window

OUTPUTS = Path(__file__).parent / "outputs"
KERNELS = ("_Z5k_onePf",), ("_Z5k_twoPf",)
GFX942 = 0x54C
CODES = {"gfx90a": code_object(), "gfx942": code_object(GFX942)}

needs_zstd = pytest.mark.skipif(
    not any(
        importlib.util.find_spec(parent) and importlib.util.find_spec(f"{parent}.zstd")
        for parent in ("compression", "backports")
    ),
    reason="no zstd module (Python 3.14, or backports.zstd)",
)


def library(folder: Path, *bundles: bytes, registered: int | None = None) -> Path:
    path = folder / "demo.so"
    path.write_bytes(hip_library(*bundles, registered=registered))
    return path


def from_clang(folder: Path, name: str) -> tuple[GpuCode, ...]:
    return read_hip_code(library(folder, (OUTPUTS / name).read_bytes(), registered=2))


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("two_files_5.7", "gfx1100 gfx90a"),
        ("features_7.2", "gfx908:sramecc+:xnack- gfx90a:xnack+ gfx90a:xnack-"),
        # 6.4 writes version 2 of the packed form, 7.2 version 3.
        pytest.param("packed_6.4", "gfx1100 gfx90a", marks=needs_zstd),
        pytest.param("packed_7.2", "gfx1100 gfx90a", marks=needs_zstd),
    ],
)
def test_two_files_by_clang(tmp_path: Path, name: str, targets: str) -> None:
    assert from_clang(tmp_path, f"{name}.hip_fatbin") == tuple(
        GpuCode("hsaco", parse(target), kernels)
        for kernels in KERNELS
        for target in targets.split()
    )


def test_packed_without_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(packing.importlib, "import_module", no_module)
    with pytest.raises(WheelError, match=r"bundle 1 .*install backports\.zstd"):
        from_clang(tmp_path, "packed_7.2.hip_fatbin")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_right_library_with_one_byte_changed(tmp_path: Path, data: st.DataObject) -> None:
    right = bytearray(hip_library(make_bundle(CODES, align=64)))
    right[data.draw(st.integers(0, len(right) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "demo.so"
    path.write_bytes(right[: data.draw(st.integers(1, len(right)))])
    with contextlib.suppress(WheelError):
        read_hip_code(path)


def test_all_code_objects_together_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library(tmp_path, packed(make_bundle(CODES)), packed(make_bundle(CODES)))
    assert len(read_hip_code(path)) == 4
    monkeypatch.setattr(budgets, "GPU_CODE_BYTES", 3 * len(CODES["gfx90a"]))
    with pytest.raises(WheelError, match="bytes of them"):
        read_hip_code(path)


def test_more_or_fewer_bundles_than_registered(tmp_path: Path) -> None:
    one = make_bundle(CODES)
    with pytest.raises(WheelError, match="holds 2 bundles, 1 are registered"):
        read_hip_code(library(tmp_path, one, one, registered=1))
    with pytest.raises(WheelError, match="holds 0 bundles, 1 are registered"):
        read_hip_code(library(tmp_path, b"", registered=1))


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ({"gfx90a": code_object(GFX942)}, "--gfx90a' of .hip_fatbin holds code for gfx942"),
        ({"gfx90a": code_object(0x63F)}, "holds code for gfx90a:xnack-"),
        ({"gfx90a:xnack-": code_object()}, "holds code for gfx90a$"),
        ({"sm_90": code_object()}, "is for no AMD GPU"),
        ({"gfx90a": b""}, "not an ELF file"),
        ({"gfx90a": code_object()[:-100]}, "not an ELF file"),
        ({"gfx90a": code_object(machine=X86_64)}, "for x86_64; amdgpu expected"),
        ({"gfx90a": code_object(abi_version=1)}, "ABI version 1; 2, 3 or 4 expected"),
        ({"gfx90a": code_object(0x5FE)}, "processor 0xfe is in no table"),
    ],
)
def test_a_bent_entry(tmp_path: Path, codes: dict[str, bytes], says: str) -> None:
    with pytest.raises(WheelError, match=says):
        read_hip_code(library(tmp_path, make_bundle(codes)))


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        (0x41, "gfx1100"),
        (0x53F, "gfx90a"),
        (0x63F, "gfx90a:xnack-"),
        (0x73F, "gfx90a:xnack+"),
        (0xB30, "gfx908:sramecc-:xnack+"),
        (0xE30, "gfx908:sramecc+:xnack-"),
    ],
)
def test_targets_in_the_header(flags: int, target: str) -> None:
    assert read_code_object(code_object(flags)).arch.binary_name == target


def test_only_descriptors_are_kernels() -> None:
    symbols = ["_Z1kPf", "_Z1kPf.kd", "_Z6helperv", "table", "_Z1aPf.kd", "_Z1aPf"]
    code = make_elf(machine=224, flags=0x41, abi_version=3, symbols=symbols)
    assert read_code_object(code) == GpuCode("hsaco", parse("gfx1100"), ("_Z1aPf", "_Z1kPf"))


def test_a_code_object_without_symbols() -> None:
    bent = make_elf(machine=224, flags=0x41, abi_version=3).replace(b".dynsym", b".dynsyX")
    with pytest.raises(WheelError, match="no table of symbols"):
        read_code_object(bent)


@pytest.mark.parametrize("byte", [b"\xff", b"\x7f", b"\x01"])
def test_a_table_beyond_any_file(tmp_path: Path, byte: bytes) -> None:
    right = bytearray(hip_library(make_bundle(CODES)))
    right[40:48] = byte * 8  # e_shoff
    path = tmp_path / "demo.so"
    path.write_bytes(right)
    with pytest.raises(WheelError, match=r"demo\.so: not an ELF file"):
        read_hip_code(path)


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
def test_a_bent_bundle(section: bytes, says: str) -> None:
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
