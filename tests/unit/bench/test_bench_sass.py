"""Kernels of two trees, compared by their machine code."""

import shutil

import pytest
from sass import Code, code_of, demangle, differences

from elfmaker import cubin, make_elf

CUDA = 190


def kernel(text=b"code", constants=b"bank", registers=40, name="_Z1kPf"):
    info = registers << 24 | 5  # the lower bits are the number of a symbol
    return make_elf(
        machine=CUDA,
        sections={f".text.{name}": text, f".nv.constant0.{name}": constants},
        kinds={f".text.{name}": (1, info)},
    )


def test_a_kernel_is_its_code_its_registers_and_its_constants():
    (one,) = code_of(kernel(), "a.cu")
    assert one[0] == "_Z1kPf"
    assert code_of(kernel(), "b.cu") == Code([one])
    for change in ({"text": b"edoc"}, {"constants": b"bang"}, {"registers": 41}):
        assert code_of(kernel(**change), "a.cu") != Code([one])


def test_a_cubin_without_kernels_has_no_code():
    assert code_of(cubin(), "a.cu") == Code()


def test_constants_that_kernels_share_belong_to_their_file():
    shared = make_elf(machine=CUDA, sections={".nv.constant3": b"x", ".nv.shared.reserved.0": b""})
    assert [name for name, _ in code_of(shared, "a.cu")] == ["constants of a.cu"]


def test_what_differs():
    before = Code([("same", "1"), ("changed", "2"), ("old", "3"), ("gone", "4"), ("twice", "6")])
    after = Code([("new", "5"), ("renamed", "3"), ("changed", "9"), ("same", "1"), ("twice", "6")])
    assert differences(before, after) == (
        ["differs: changed", "gone: gone", "new: new"],
        ["renamed: old\n     to: renamed"],
    )
    assert differences(before, before) == ([], [])


def test_one_of_two_kernels_with_a_name_is_missed():
    assert differences(Code({("k", "1"): 2}), Code([("k", "1")])) == (["gone: k"], [])


@pytest.mark.skipif(not shutil.which("c++filt"), reason="needs c++filt")
def test_an_anonymous_namespace_has_no_hash():
    spaces = [f"_GLOBAL__N__{digit * 8}_8_probe_cu_12345678_12345" for digit in "ab"]
    names = [f"_ZN{len(space)}{space}1kEv" for space in spaces]
    readable = demangle(Code((name, "1") for name in names))
    assert readable == Code({("(anonymous namespace)::k()", "1"): 2})
