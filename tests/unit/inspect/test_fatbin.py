"""Fat binaries: those of nvcc, bent ones, and what a cuobjdump may say of them."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfmaker import LZ4, cubin, cuda_library, fatbin, lz4_literals, make_elf, module, ptx
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.doctor.native import read_all_code
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import packing
from torchwheel_runtime.inspect.cuda import read_cuda_code, read_cuda_headers
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.inspect.fatbin import read_fatbin
from torchwheel_runtime.inspect.packing import NoZstdError
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window
from wheelmaker import stable, wheel_around

OUTPUTS = Path(__file__).parent / "outputs"
KERNELS = ("_Z3onePf", "_Z3twoPf")
RIGHT = fatbin(module(cubin()), module(ptx(), kind=1))
ZSTD = 0x8011


def modules(section: bytes) -> tuple[GpuCode, ...]:
    return read_fatbin(Window.of_bytes(section), CpuTime())


@pytest.mark.parametrize(
    ("file", "archs", "for_ptx", "version"),
    [
        ("plain_13.0", ("8.0", "10.0f"), "10.0f", "9.0"),
        ("zstd_13.0", ("8.0", "10.0f"), "10.0f", "9.0"),
        ("lz4_12.4", ("8.0", "9.0a"), "9.0a", "8.4"),
    ],
)
def test_what_nvcc_made(file: str, archs: tuple[str, ...], for_ptx: str, version: str) -> None:
    if file.startswith("zstd"):
        pytest.importorskip("backports.zstd")
    expected = [GpuCode("sass", parse(arch), KERNELS) for arch in archs]
    section = (OUTPUTS / f"{file}.nv_fatbin").read_bytes()
    assert modules(section) == (*expected, GpuCode("ptx", parse(for_ptx)))
    assert modules(section)[-1].ptx_version == version
    assert modules(section + bytes(24) + section) == (*expected, GpuCode("ptx", parse(for_ptx))) * 2


def test_the_headers_of_both_generations() -> None:
    assert modules(
        fatbin(
            module(cubin(90, abi_version=7), 90),
            module(cubin(120), 120, flags=0x20_0011),
            module(cubin(90, ()), 90, flags=0x10_0011),
            module(ptx("sm_100a"), 100, kind=1, flags=0x10_0011),
        )
    ) == (
        GpuCode("sass", parse("9.0"), ("_Z1kPf",)),
        GpuCode("sass", parse("12.0f"), ("_Z1kPf",)),
        GpuCode("sass", parse("9.0a")),
        GpuCode("ptx", parse("10.0a")),
    )


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (b"text", "cut short"),
        (b"text" * 9, "no container of GPU code"),
        (fatbin(magic=0x466243B1), "no container of GPU code"),
        (fatbin(version=2), "no container of GPU code"),
        (RIGHT + b"more" + bytes(99), "no container of GPU code"),
        (RIGHT[:-8], "leads out of its section"),
        (fatbin(module(cubin(), room=1 << 40)), "leads out of its container"),
        (fatbin(module(cubin(), header=8)), "leads out of its container"),
        (fatbin(module(cubin(), header=1 << 30)), "leads out of its container"),
        (fatbin(module(cubin()), size=70), "leads out of its container|cut short"),
        (fatbin(module(cubin(), kind=8)), "of kind 8; 1"),
        (fatbin(module(cubin(), flags=0x30_0011)), "flags 0x300011 are not understood"),
        (fatbin(module(cubin(), arch=7)), "for 7, which is no GPU"),
        (fatbin(module(cubin(), 80, packed=1 << 30, flags=ZSTD)), "at most"),
        (fatbin(module(b"packed", 80, kind=2, size=1 << 40, flags=LZ4)), "at most"),
        # What a header says and the code does not.
        (fatbin(module(cubin(80), 90)), "machine code for sm_80; its header says sm_90"),
        (fatbin(module(ptx(), 90)), "PTX for sm_80; its header says sm_90"),
        (fatbin(module(b"nothing", 80)), "PTX for nothing"),
        (fatbin(module(b"no ELF file", 80, kind=2)), "does not begin as one"),
        (fatbin(module(cubin(abi_version=3))), "machine code for cuda, ABI 3"),
        (fatbin(module(b"\xff" * 64, 80, kind=2, size=1 << 20, flags=LZ4)), "not an ELF file"),
        (fatbin(module(b"not zstd", 80, kind=2, size=99, flags=ZSTD)), "cannot be unpacked|zstd"),
    ],
)
def test_a_bent_section(section: bytes, says: str) -> None:
    with pytest.raises(WheelError, match=says):
        modules(section)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_change_is_modules_or_one_error(data: st.DataObject) -> None:
    bent = bytearray(RIGHT)
    for _ in range(data.draw(st.integers(1, 4))):
        bent[data.draw(st.integers(0, len(bent) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WheelError):
        modules(bytes(bent[: data.draw(st.integers(0, len(bent)))]))


@given(st.binary(min_size=15, max_size=2000), st.integers(1, 40), st.integers(0, 600))
def test_what_lz4_repeats(data: bytes, distance: int, count: int) -> None:
    distance = min(distance, len(data))
    token, more, rest = (15, b"", count) if count >= 15 else (count, None, 0)
    if more is not None:
        rest -= 15
        while rest >= 255:
            more, rest = more + b"\xff", rest - 255
        more += bytes([rest])
    literals = bytearray(lz4_literals(data))
    literals[0] |= token
    packed = bytes(literals) + distance.to_bytes(2, "little") + (more or b"") + b"\x10!"
    plain = bytearray(data)
    for _ in range(count + 4):
        plain.append(plain[-distance])
    plain += b"!"
    assert packing.unpack_lz4(packed, len(plain), len(plain)) == plain
    assert packing.unpack_lz4(packed, 20, len(plain)) == plain[:20]
    with contextlib.suppress(ValueError):
        assert len(packing.unpack_lz4(packed[:-3], len(plain), len(plain))) < len(plain)


@given(st.binary(max_size=200))
def test_any_bytes_are_lz4_or_an_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert len(packing.unpack_lz4(data, 100, 500)) <= 100


def test_a_short_block_of_much_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="malformed LZ4"):
        packing.unpack_lz4(b"\x1fa\1\0" + b"\xff" * (1 << 20) + b"\0", 1 << 20, 1 << 20)


def test_the_time_is_bounded() -> None:
    with pytest.raises(WheelError, match="take more than -1 s to read"):
        read_fatbin(Window.of_bytes(RIGHT), CpuTime(-1))


def test_zstd_without_its_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(packing.importlib, "import_module", no_module)
    section = fatbin(module(b"packed", 80, kind=2, size=99, flags=ZSTD))
    with pytest.raises(NoZstdError, match=r"install backports\.zstd"):
        modules(section)
    library = tmp_path / "x.so"
    library.write_bytes(cuda_library(section))
    assert read_cuda_headers(library) == (GpuCode("sass", parse("8.0"), ("",)),)
    assert read_all_code(library, CpuTime()) == read_cuda_headers(library)


# What a cuobjdump says.

ONE = "Fatbin elf code:\narch = sm_80\nsymbols:\nFUNC GLOBAL DEFAULT ENTRY _Z1kPf\n"
OBJECT = "CUDA_OBJECT   GLOBAL  DEFAULT    -                      table\n"
# As the versions print what they have no name for, or two names: seen with nvcc 13.0's managed
# variables and with symbols whose fields were changed byte by byte.
ODD = (
    "STT_OBJECT       STB_LOCAL  STO_?          shared_counter\n"
    "STT_CUDA_OBJECT  STB_?      STV_DEFAULT    table\n"
    "CUDA_OBJECT   ?       DEFAULT    UNIFIED_OBJECT|MANAGED               table\n"
    "OBJECT        LOCAL   DEFAULT    UNKNOWN(0xc0)                     U  counter\n"
    "?             GLOBAL  DEFAULT    -                                    other\n"
)
STOPS = "cuobjdump fatal   : Invalid ELF in 'demo.so'"
PTX = "Fatbin ptx code:\narch = sm_80\n"


def cuobjdump(folder: Path, says: str, status: int = 0, errors: str = "") -> Path:
    (folder / "says.txt").write_text(says)
    (folder / "errors.txt").write_text(errors)
    path = folder / "cuobjdump"
    path.write_text(
        f"#!/bin/sh\ncat {folder}/says.txt; cat {folder}/errors.txt >&2; exit {status}\n"
    )
    path.chmod(0o755)
    return path


def library(folder: Path) -> Path:
    path = folder / "demo.so"
    path.write_bytes(cuda_library(RIGHT))
    return path


def test_one_on_the_path_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "bin" / "cuobjdump"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/was_run\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(planted.parent), prepend=os.pathsep)
    for variable in ("CUDA_HOME", "TORCHWHEEL_CUOBJDUMP"):
        monkeypatch.delenv(variable, raising=False)
    library = cuda_library((OUTPUTS / "plain_13.0.nv_fatbin").read_bytes())
    wheel = wheel_around(tmp_path, library, stable(archs=("9.0",)), "linux_x86_64")
    results = {result.name: result for result in run_gates(wheel, Limits(max_size_mib=64))}
    assert "claimed, but no machine code with a kernel for sm_90" in results["archs"].says
    assert not (tmp_path / "was_run").exists()


def test_both_readers_agree(tmp_path: Path) -> None:
    expected = GpuCode("sass", parse("8.0"), ("_Z1kPf",)), GpuCode("ptx", parse("8.0"))
    assert read_cuda_code(library(tmp_path)) == expected
    said = cuobjdump(tmp_path, ONE + OBJECT + ODD + PTX)
    assert read_cuda_code(library(tmp_path), said) == expected
    joined = ONE.replace("ENTRY", "ENTRY|UNIFIED_FUNC") + PTX
    assert read_cuda_code(library(tmp_path), cuobjdump(tmp_path, joined)) == expected


def test_a_cuobjdump_that_stops_at_an_uncompressed_cubin(tmp_path: Path) -> None:
    """As 13.2 to 13.5 do at the first of the seven in bitsandbytes' library for CUDA 12.1."""
    path = tmp_path / "demo.so"
    path.write_bytes(cuda_library(fatbin(*(module(cubin(arch), arch) for arch in (80, 90)))))
    expected = (
        GpuCode("sass", parse("8.0"), ("_Z1kPf",)),
        GpuCode("sass", parse("9.0"), ("_Z1kPf",)),
    )
    cut = "Fatbin elf code:\narch = sm_80\ncode version = [1,7]\n"
    for says in (cut, ONE + cut.replace("80", "90")):
        assert read_cuda_code(path, cuobjdump(tmp_path, says, 255, STOPS)) == expected
    other = ONE.replace("_Z1kPf", "_Z1jPf") + cut
    with pytest.raises(WheelError, match="they differ in sass for sm_80"):
        read_cuda_code(path, cuobjdump(tmp_path, other, 255, STOPS))
    with pytest.raises(TorchwheelError, match=r"failed on demo\.so"):
        read_cuda_code(path, cuobjdump(tmp_path, cut, 255, "cuobjdump fatal   : no memory"))
    # It stops at no compressed one.
    path.write_bytes(cuda_library((OUTPUTS / "lz4_12.4.nv_fatbin").read_bytes()))
    with pytest.raises(TorchwheelError, match=r"failed on demo\.so"):
        read_cuda_code(path, cuobjdump(tmp_path, cut, 255, STOPS))


def test_a_cubin_may_have_many_sections() -> None:
    """Those of sgl-kernel have 4354 of them, cuBLASLt's 4797."""
    code = make_elf(
        machine=190,
        abi_version=8,
        flags=80 << 8,
        sections={f".text.{number}": b"" for number in range(5000)},
    )
    assert modules(fatbin(module(code))) == (GpuCode("sass", parse("8.0")),)


@pytest.mark.parametrize(
    ("says", "fact"),
    [
        (ONE, "2 modules of GPU code by the library's headers, 1 by .*; they differ in ptx"),
        (ONE.replace("sm_80", "sm_90") + PTX, "they differ in sass for sm_80"),
        (ONE.replace("_Z1kPf", "_Z1jPf") + PTX, "they differ in sass for sm_80"),
        (ONE + ONE + PTX, "3 by .*; they differ in sass for sm_80"),
        ("", "0 by .*; they differ"),
    ],
)
def test_a_cuobjdump_that_says_something_else(tmp_path: Path, says: str, fact: str) -> None:
    with pytest.raises(WheelError, match=fact):
        read_cuda_code(library(tmp_path), cuobjdump(tmp_path, says))
