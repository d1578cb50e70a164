"""Which wheel of an index is chosen."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from install_cases import ANY, ENVIRONMENT, WITHOUT_GPU, candidate, described, environment, judged
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import wheelmaker
from torchwheel.index.needs import Kernels, WheelNeeds, needs_of_claims
from torchwheel.inspect.local_version import LocalVersion, read_local_version
from torchwheel.install.choose import Judgement, best, judge, torch_to_install
from torchwheel.install.page import needs_of_name
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse

# Each wheel is accepted, or rejected with every reason; the best of those that fit is taken.


FITS = candidate("1.0+cu130torch2.11")


@pytest.mark.parametrize(
    ("one", "here", "why"),
    [
        (FITS, {}, []),
        (candidate("1.0+cu130torch2.12"), {}, ["torch"]),
        (candidate("1.0+cu124torch2.11"), {}, ["toolkit-torch"]),
        (candidate("1.0+cu124torch2.6"), {}, ["torch", "toolkit-torch"]),
        (candidate("1.0+cu13torch2.11"), {}, []),
        (candidate("1.0+rocm7.2torch2.11"), {}, ["backend"]),
        (candidate("1.0+cpu"), {}, ["backend"]),
        (candidate("1.0+cputorch2.11"), {"torch": "2.11.0+cpu"}, []),
        (candidate("1.0", needs=WheelNeeds("aten", (), (Kernels("cuda", ""),))), {}, []),
        (FITS, {"torch": "2.11.0+cpu"}, ["backend"]),
        (FITS, {"torch": None}, []),
        (candidate("1.0+rocm7.2torch2.11"), {"torch": None}, ["backend"]),
        (candidate("1.0+cu12torch2.6cxx11abiFALSE"), {"torch": "2.6.0+cu124"}, ["strings"]),
        (
            candidate("1.0+cu12torch2.6cxx11abiFALSE"),
            {"torch": "2.6.0+cu124", "old_abi": True},
            [],
        ),
        (candidate("1.0+cu130torch2.11", "cp311-cp311"), {}, ["python"]),
        (candidate("1.0+cu130torch2.11", requires_python=SpecifierSet(">=3.13")), {}, ["python"]),
        (candidate("1.0+cu130torch2.11", platform="manylinux_2_39_x86_64"), {}, ["glibc"]),
        (candidate("1.0+cu130torch2.11", platform="manylinux_2_28_aarch64"), {}, ["platform"]),
        (candidate("1.0+cu130torch2.11", platform="win_amd64"), {}, ["platform"]),
        (candidate("1.0+cu130torch2.11", sha256=None), {}, ["hash"]),
        (candidate("1.0+cu130torch2.11", withdrawn="wrong results"), {}, ["withdrawn"]),
        (candidate("1.1rc1+cu130torch2.11"), {}, ["version"]),
        (FITS, {"driver": Driver("cuda", "535.104.05", "12.2")}, ["driver"]),
        (described("1.0+cu130", wheelmaker.stable(archs=("8.0",))), {}, ["archs"]),
        (described("1.0+cu130", wheelmaker.stable(archs=("8.0+PTX",))), {}, []),
        (described("1.0+cu130", wheelmaker.stable()), {"torch": "2.8.0+cu128"}, ["torch"]),
        (described("1.0+cu130", wheelmaker.stable()), {"torch": "2.12.0+cu126"}, []),
        (described("1.0+cu130", wheelmaker.stable()), {"torch": "2.11.0+cpu"}, []),
        (described("1.0", wheelmaker.universal()), {"torch": "2.7.0+cu128"}, ["torch"]),
        (described("1.0", wheelmaker.universal()), {"torch": "2.6.0+cpu"}, []),
        (described("1.0", wheelmaker.universal(["rocm 6.4"])), {}, []),
        (described("1.0", wheelmaker.PURE, platform="any"), {}, []),
        # A backend is known or unknown, never another.
        (candidate("1.0+xpu"), {}, ["backend"]),
        (candidate("1.0+xpu"), {"torch": "2.11.0+cpu"}, ["backend"]),
        (candidate("1.0+xpu"), {"torch": "2.11.0+xpu"}, []),
        (candidate("1.0+npu"), {"torch": "2.11.0+xpu"}, ["backend"]),
        (candidate("1.0+gaudi000"), {"torch": "2.11.0+hpu.1.21"}, []),
        (candidate("1.0+rocm"), {}, ["backend"]),
        (candidate("1.0+cuda"), {}, []),
        (candidate("1.0+cuda"), {"torch": "2.11.0+cpu"}, ["backend"]),
        (candidate("1.0+cpu"), {"torch": "2.11.0+xpu"}, ["backend"]),
        (candidate("1.0+cu130"), {"torch": "2.11.0+xpu"}, ["backend"]),
        (candidate("1.0", "py3-none"), {"torch": "2.11.0+xpu"}, []),
        # What cannot be read is never any torch.
        (candidate("1.0+torchnightly.cu130"), {}, ["torch"]),
        (candidate("1.0+cu130torch2.9andhigher"), {}, []),
        (candidate("1.0+cu130torch2.12andhigher"), {}, ["torch"]),
    ],
    ids=lambda value: value.file if hasattr(value, "file") else "",
)
def test_a_wheel(one, here, why):
    assert judged(one, environment(**here)) == why


def test_a_version_that_is_named_in_full_may_be_withdrawn_or_a_candidate():
    assert judged(candidate("1.0+cu130torch2.11", withdrawn="x"), wanted="==1.0") == ["withdrawn"]
    named = "==1.0+cu130torch2.11"
    assert judged(candidate("1.0+cu130torch2.11", withdrawn="x"), wanted=named) == []
    assert judged(candidate("2.0rc1"), wanted="==2.0rc1") == []
    assert judged(candidate("2.0"), wanted="==1.0") == ["version"]


def test_every_reason_is_named():
    one = candidate("1.0+cu124torch2.6cxx11abiFALSE", "cp310-cp310")
    verdict = judge(one, ENVIRONMENT, SpecifierSet(">=2"))
    assert [reason.line for reason in verdict.reasons] == [
        "version: expected >=2; found 1.0+cu124torch2.6cxx11abifalse",
        "python: expected cp310-cp310; found CPython 3.12.3",
        "torch: expected torch==2.6.*; found torch 2.11.0+cu130",
        "strings: expected a torch with the strings of before GCC 5; "
        "found the strings of GCC 5 and later",
        "toolkit-torch: expected CUDA 13, that of torch 2.11.0+cu130, built with CUDA 13.0 "
        "(torch's C++ API hands out structures of its own CUDA runtime); "
        "found a library built with CUDA 12.4",
    ]


def order(here, *candidates):
    found = best([judge(one, here, ANY) for one in candidates], here)
    return [str(one.candidate.version) for one in found]


UNIVERSAL = described("1.0", wheelmaker.universal(("cuda 13.0",), ("2.11",)))
PURE = described("1.0", wheelmaker.PURE, platform="any")
STABLE = described("1.0+cu130", wheelmaker.stable())
STABLE132 = described("1.0+cu132", wheelmaker.stable(toolkit="cu132", toolkit_version="13.2"))
CPU = candidate("1.0+cputorch2.11")


@pytest.mark.parametrize(
    ("here", "candidates", "expected"),
    [
        ({}, [PURE, UNIVERSAL, STABLE, FITS], ["1.0+cu130", "1.0+cu130torch2.11", "1.0"]),
        ({}, [candidate("0.9+cu130torch2.11"), PURE], ["1.0", "0.9+cu130torch2.11"]),
        ({}, [candidate("1.0+cu132torch2.11"), FITS], ["1.0+cu130torch2.11", "1.0+cu132torch2.11"]),
        ({"torch": "2.11.0+cpu"}, [STABLE, PURE, UNIVERSAL, CPU], ["1.0+cputorch2.11", "1.0"]),
        (
            {"torch": "2.13.0+cu132", "driver": Driver("cuda", "590.1", "13.2")},
            [STABLE, STABLE132],
            ["1.0+cu132", "1.0+cu130"],
        ),
        (
            {"torch": None},
            [candidate("1.0+cu130torch2.11"), candidate("1.0+cu130torch2.12"), CPU],
            ["1.0+cu130torch2.12", "1.0+cu130torch2.11", "1.0+cputorch2.11"],
        ),
    ],
)
def test_the_best(here, candidates, expected):
    assert order(environment(**here), *candidates)[: len(expected)] == expected
    assert order(environment(**here), *reversed(candidates))[: len(expected)] == expected


def test_machine_code_for_the_gpu_comes_before_ptx():
    ptx = described("1.0+cu130", wheelmaker.stable(archs=("8.0+PTX",)), "cp312-cp312")
    code = described("1.0+cu130", wheelmaker.stable(archs=("9.0",)))
    found = best([judge(one, ENVIRONMENT, ANY) for one in (ptx, code)], ENVIRONMENT)
    assert [one.candidate for one in found] == [code, ptx]


def test_a_gpu_without_code_is_a_note_if_another_has_code():
    old = Gpu(1, "Tesla P100", parse("6.0"))
    here = dataclasses.replace(ENVIRONMENT, gpus=(*ENVIRONMENT.gpus, old))
    verdict = judge(STABLE, here, ANY)
    assert verdict.reasons == ()
    says = "archs: expected code for GPU 1 (Tesla P100, 6.0); found 8.0 9.0"
    assert [note.line for note in verdict.notes] == [says]


def test_without_gpus_the_torch_decides():
    here = environment(**WITHOUT_GPU)
    assert order(here, CPU, FITS, candidate("1.0+cpu")) == ["1.0+cu130torch2.11"]


@pytest.mark.parametrize(
    ("one", "torch"),
    [
        (FITS, ("==2.11.*", "cu130")),
        (candidate("1.0+cu13torch2.11"), ("==2.11.*", None)),
        (candidate("1.0+cputorch2.11"), ("==2.11.*", "cpu")),
        (candidate("1.0+rocm7.2torch2.11"), ("==2.11.*", "rocm7.2")),
        (STABLE, (">=2.11", None)),
        (candidate("1.0"), None),
    ],
)
def test_the_torch_to_install_first(one, torch):
    assert torch_to_install([Judgement(one, one.needs)]) == torch


@pytest.mark.parametrize(
    ("wide", "torch"),
    [
        (("universal", ("==2.10.*", "==2.6.*", ">=2.11")), ">=2.6"),
        (("pure", (">=2.6",)), ">=2.6"),
    ],
)
def test_the_oldest_torch_of_the_wheel_for_every_torch_counts(wide, torch):
    """The small wheel may be the best one, but the release has one for an older torch, too."""
    for version, expected in (("1.0", torch), ("0.9", ">=2.11")):
        every = candidate(version)
        found = [Judgement(STABLE, STABLE.needs), Judgement(every, WheelNeeds(*wide))]
        assert torch_to_install(found) == (expected, None)


def test_the_needs_of_claims():
    needs = needs_of_claims(wheelmaker.universal(("cuda 12.4", "rocm 6.4")))
    assert needs.torch == ("==2.6.*", ">=2.11")
    assert [(one.backend, one.release) for one in needs.kernels] == [
        ("cuda", "12.4"),
        ("rocm", "6.4"),
    ]


@pytest.mark.parametrize(
    ("said", "needs"),
    [
        (LocalVersion(), WheelNeeds()),
        (
            LocalVersion("2.6", cuda="12.4"),
            WheelNeeds("aten", ("==2.6.*",), (Kernels("cuda", "12.4"),)),
        ),
        (LocalVersion("2.6", new_strings=False), WheelNeeds("aten", ("==2.6.*",), old_abi=True)),
        (LocalVersion("2.6", new_strings=True), WheelNeeds("aten", ("==2.6.*",), old_abi=False)),
        (LocalVersion("2.9", or_later=True), WheelNeeds("aten", (">=2.9",))),
        (LocalVersion(rocm="6.2"), WheelNeeds(kernels=(Kernels("rocm", "6.2"),))),
        (LocalVersion(cpu=True), WheelNeeds(for_cpu=True)),
    ],
)
def test_what_a_local_version_needs(said, needs):
    assert needs_of_name(said) == needs


@given(st.from_regex(r"[a-z0-9]{1,20}(\.[a-z0-9]{1,9}){0,3}", fullmatch=True))
def test_no_name_breaks_it(local):
    needs_of_name(read_local_version(Version(f"1+{local}")))


@pytest.mark.parametrize(
    ("here", "file", "says"),
    [
        (ENVIRONMENT, "x", "cu13, which fits this machine; uv alone takes such a wheel"),
        (
            dataclasses.replace(ENVIRONMENT, driver=Driver("cuda", "535.1", "12.2")),
            "x",
            "cu13, which is for other machines; uv alone takes such a wheel",
        ),
        (
            ENVIRONMENT,
            None,
            "cu13, which fits this machine; no installer takes it, as the index has no "
            "demo-1.0.0-variants.json",
        ),
    ],
)
def test_a_labelled_wheel_is_for_uv(here, file, says):
    claims = dataclasses.replace(wheelmaker.universal(), variant="universal-cu13", label="cu13")
    parts = (dataclasses.replace(claims.parts[0], archs=(parse("9.0"),)), *claims.parts[1:])
    claims = dataclasses.replace(claims, parts=parts)
    verdict = judge(
        described("1.0.0", claims, label="cu13", label_file=file), here, SpecifierSet("")
    )
    lines = [one.line for one in verdict.reasons if one.rule == "label"]
    assert lines == [f"label: expected a wheel that pip takes; found the label {says}"]
    assert best([verdict], here) == []
