"""Which GPUs a process may use, by what the drivers list and the variables choose."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.arch import devices
from torchwheel.arch.devices import Gpu, VisibleGpus, visible_gpus
from torchwheel.arch.drivers import Board, cuda_order, select_boards
from torchwheel.arch.model import CudaArch

A100 = Board("A100", CudaArch(8, 0), "GPU-aa11", speed=6912 * 1410)
H200 = Board("H200", CudaArch(9, 0), "GPU-ab22", speed=16896 * 1980)
T4 = Board("T4", CudaArch(7, 5), "GPU-cd33", speed=2560 * 1590)
SLICED = Board("H100", CudaArch(9, 0), "GPU-ef44", slices=("MIG-1a", "MIG-1b", "MIG-2c"))
BOARDS = [A100, H200, T4, SLICED]


def names(value, boards=BOARDS):
    return " ".join(board.name for board in select_boards(value, boards))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("0", "A100"),
        ("2,0", "T4 A100"),
        (" 1 , 2 ", "H200 T4"),
        ("1gpu2,2ampere", "H200 T4"),
        ("+1", "H200"),
        ("", ""),
        ("-1", ""),
        ("0,-1,2", "A100"),
        ("0,x,2", "A100"),
        ("0,9,2", "A100"),
        ("0,0", ""),
        ("0,9,0", "A100"),
        ("0,9,9", "A100"),
        ("NoDevFiles", ""),
        ("GPU-aa11,GPU-cd33", "A100 T4"),
        ("GPU-c,GPU-aa", "T4 A100"),
        ("GPU-a", ""),  # the beginning of two
        ("GPU-cd,GPU-zz,GPU-aa", "T4"),
        ("GPU-cd,0,GPU-aa", "T4"),
        ("GPU-cd,aa11", "T4"),
        ("GPU-cd,GPU-cd33", ""),
        ("GPU-cd,GPU-cd", ""),
        ("GPU-", ""),
        ("gpu-cd33", ""),
        ("GPU-CD33", "T4"),
        ("0,GPU-cd33", "A100"),
        ("MIG-1b", "H100"),
        ("MIG-1b,MIG-2c", "H100"),
        ("MIG-1", ""),
        ("MIG-zz", ""),
        ("GPU-ef", "H100"),
    ],
)
def test_what_a_value_chooses(value, found):
    assert names(value) == found


def test_no_digits_of_a_uuid_name_no_board_even_if_there_is_one():
    assert names("GPU-", [T4]) == ""


NUMBERS = st.lists(
    st.sampled_from(["0", "1", "2", "3", "7", "-1", "", "1x", " 2 ", "+3", "x", "GPU-aa"])
)
UUIDS = st.lists(st.sampled_from(["GPU-aa11", "GPU-a", "GPU-ab", "GPU-cd", "GPU-zz", "0", ""]))


def one_board_again(entries):
    """torch minds a board that is named twice after the list has ended; CUDA does not (seen)."""
    named = [re.sub(r"[^0-9a-zA-Z-]", "", entry).removesuffix("x") for entry in entries]
    return len(set(named)) < len(named)


@given((NUMBERS | UUIDS).filter(lambda entries: not one_board_again(entries)).map(",".join))
def test_it_chooses_as_torch_does(value):
    cuda = pytest.importorskip("torch.cuda", reason="torch is not installed")
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    try:
        listed = cuda._parse_visible_devices()
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
    if listed and isinstance(listed[0], str):
        listed = cuda._transform_uuid_to_ordinals(listed, [board.uuid for board in BOARDS])
    known = next((i for i, n in enumerate(listed) if n >= len(BOARDS)), len(listed))
    assert list(select_boards(value, BOARDS)) == [BOARDS[n] for n in listed[:known]]


@given(st.text(max_size=12) | (NUMBERS | UUIDS).map(",".join))
def test_any_value_chooses_boards_that_are_there_each_once(value):
    found = list(select_boards(value, BOARDS))
    assert all(board in BOARDS for board in found)
    assert len({board.uuid for board in found}) == len(found)


def test_cuda_counts_the_fastest_first():
    boards = [T4, A100, H200]
    assert cuda_order(boards, {}) == [H200, A100, T4]
    assert cuda_order(boards, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) == [H200, A100, T4]
    assert cuda_order(boards, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == boards
    alike = [
        Board("X", CudaArch(9, 0), "GPU-1", speed=1),
        Board("X", CudaArch(9, 0), "GPU-2", speed=2),
    ]
    assert cuda_order(alike, {}) == alike


def of(boards, monkeypatch):
    monkeypatch.setattr(devices.drivers, "nvidia_boards", lambda library: boards)


def test_nvidias_gpus_are_numbered_as_torch_does(monkeypatch):
    of([T4, H200], monkeypatch)
    assert visible_gpus("cuda", {}).gpus == (
        Gpu(0, "H200", CudaArch(9, 0)),
        Gpu(1, "T4", CudaArch(7, 5)),
    )
    assert visible_gpus("cuda", {"CUDA_VISIBLE_DEVICES": "1"}).gpus == (
        Gpu(0, "T4", CudaArch(7, 5)),
    )
    pci = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_gpus("cuda", pci).gpus == (Gpu(0, "H200", CudaArch(9, 0)),)


@pytest.mark.parametrize("value", ["", "-1", "GPU-zz", "7"])
def test_hidden_gpus_are_told_from_none(value, monkeypatch):
    of([T4, H200], monkeypatch)
    found = visible_gpus("cuda", {"CUDA_VISIBLE_DEVICES": value})
    assert found == VisibleGpus(
        (),
        f'CUDA_VISIBLE_DEVICES="{value}" hides every GPU; 2 could be used',
        hidden_by="CUDA_VISIBLE_DEVICES",
    )
    of([], monkeypatch)
    assert visible_gpus("cuda", {"CUDA_VISIBLE_DEVICES": value}).why == "the driver knows of no GPU"


def test_without_a_driver_there_is_a_reason(tmp_path):
    found = visible_gpus("cuda", {}, library="libno-such-library.so.1")
    assert found.gpus == ()
    assert found.why is not None
    assert found.why.startswith("no NVIDIA driver: libno-such-library.so.1: cannot open shared obj")
    found = visible_gpus("rocm", {}, root=tmp_path)
    assert found.gpus == ()
    assert found.why is not None
    assert found.why.startswith("no AMD GPU driver: ")
    assert found.why.endswith("No such file or directory")
