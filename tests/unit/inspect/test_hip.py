"""Reading HIP code: sections that clang made, bent bundles, bent code objects."""

import contextlib
import importlib.util
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfmaker import X86_64, code_object, hip_library, make_bundle, make_elf, packed
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.inspect import budgets, packing
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.inspect.hip import read_code_object, read_hip_code
from torchwheel_runtime.inspect.window import WheelError

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


def test_two_files_of_hip_5_7(tmp_path: Path) -> None:
    assert from_clang(tmp_path, "two_files_5.7.hip_fatbin") == tuple(
        GpuCode("hsaco", parse(arch), kernels)
        for kernels in KERNELS
        for arch in ("gfx1100", "gfx90a")
    )


def test_features_of_hip_7_2(tmp_path: Path) -> None:
    targets = "gfx908:sramecc+:xnack-", "gfx90a:xnack+", "gfx90a:xnack-"
    assert from_clang(tmp_path, "features_7.2.hip_fatbin") == tuple(
        GpuCode("hsaco", parse(target), kernels) for kernels in KERNELS for target in targets
    )


@needs_zstd
@pytest.mark.parametrize("release", ["6.4", "7.2"])
def test_packed_by_clang(tmp_path: Path, release: str) -> None:
    """6.4 writes version 2 of the packed form, 7.2 version 3."""
    assert from_clang(tmp_path, f"packed_{release}.hip_fatbin") == tuple(
        GpuCode("hsaco", parse(arch), kernels)
        for kernels in KERNELS
        for arch in ("gfx1100", "gfx90a")
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
