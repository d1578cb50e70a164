"""GPU targets: each arch of a library, however its code is packed."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfmaker import (
    LZ4,
    code_object,
    cubin,
    cuda_library,
    fatbin,
    hip_library,
    lz4_literals,
    make_bundle,
    module,
    ptx,
)
from torchwheel.inspect.library_facts import SMALL, GpuTarget, read_targets
from torchwheel_runtime.inspect.fatbin import kernel_count, read_fatbin
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window

OUTPUTS = Path(__file__).parent / "outputs"


def targets(folder: Path, library: bytes) -> tuple[GpuTarget, ...]:
    path = folder / "demo.so"
    path.write_bytes(library)
    return read_targets(path, CpuTime())


@pytest.mark.parametrize("file", ["plain_13.0", "zstd_13.0", "lz4_12.4"])
def test_as_many_kernels_as_the_gates_find(tmp_path: Path, file: str) -> None:
    section = (OUTPUTS / f"{file}.nv_fatbin").read_bytes()
    code = read_fatbin(Window.of_bytes(section), CpuTime())
    found = targets(tmp_path, cuda_library(section + bytes(24) + section))
    assert {(t.kind, t.arch): t.modules for t in found} == {(c.kind, c.arch): 2 for c in code}
    kernels = [t.kernels for t in found if t.kind == "sass"]
    assert kernels == [2 * len(code[0].kernels)] * len(kernels)


def test_several_containers_and_empty_modules(tmp_path: Path) -> None:
    found = targets(
        tmp_path,
        cuda_library(
            fatbin(module(cubin(80, ()), 80), module(cubin(90, ()), 90)),
            fatbin(module(cubin(80, ("a", "b")), 80), module(ptx(), 80)),
        ),
    )
    assert [(t.kind, str(t.arch), t.modules, t.kernels, t.is_code) for t in found] == [
        ("sass", "8.0", 2, 2, True),
        ("sass", "9.0", 1, 0, False),
        ("ptx", "8.0", 1, None, False),
    ]


def test_both_backends(tmp_path: Path) -> None:
    found = targets(tmp_path, hip_library(make_bundle({"gfx90a": code_object()})))
    assert [(t.kind, str(t.arch), t.kernels) for t in found] == [("hsaco", "gfx90a", 1)]


def test_a_large_lz4_module_is_not_unpacked(tmp_path: Path) -> None:
    code = cubin(80) + bytes(SMALL)
    right = module(lz4_literals(code), 80, kind=2, size=len(code), flags=LZ4)
    (found,) = targets(tmp_path, cuda_library(fatbin(right)))
    assert (found.kernels, found.is_code, found.packings) == (None, True, ("lz4",))
    wrong = module(lz4_literals(code), 90, kind=2, size=len(code), flags=LZ4)
    with pytest.raises(WheelError, match=r"machine code for sm_80; its header says sm_90"):
        targets(tmp_path, cuda_library(fatbin(wrong)))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_changed_cubin_is_counted_or_refused(data: st.DataObject) -> None:
    changed = bytearray(cubin(80, ("a", "b")))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert kernel_count(bytes(changed[: data.draw(st.integers(64, len(changed)))])) >= 0
