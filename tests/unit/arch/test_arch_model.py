"""Archs: their one spelling, and lists of them for each compiler."""

import ast
import contextlib
import os
import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel_runtime.arch import lists
from torchwheel_runtime.arch.devices import Gpu, VisibleGpus
from torchwheel_runtime.arch.model import CudaArch, RocmArch, backend_of, gencode, parse
from torchwheel_runtime.arch.releases import ToolkitRelease, torch_releases
from torchwheel_runtime.arch.releases import archs_by_release as table
from torchwheel_runtime.errors import UsageError

CUDA_ARCHS = st.builds(
    CudaArch,
    major=st.integers(1, 99),
    minor=st.integers(0, 9),
    suffix=st.sampled_from(["", "a", "f"]),
    ptx=st.booleans(),
)
ROCM_ARCHS = st.builds(
    RocmArch,
    major=st.integers(1, 99),
    minor=st.integers(0, 15),
    stepping=st.integers(0, 15),
    features=st.permutations(["xnack", "sramecc"]).flatmap(
        lambda names: st.sampled_from([(), (f"{names[0]}-",), (f"{names[0]}+", f"{names[1]}-")])
    ),
)
GENERIC = st.builds(
    RocmArch,
    major=st.integers(1, 99),
    minor=st.integers(0, 9),
    stepping=st.just(0),
    features=st.sampled_from([(), ("xnack+",)]),
    generic=st.just(True),
)


@given(CUDA_ARCHS | ROCM_ARCHS | GENERIC)
def test_what_is_written_reads_back(arch):
    assert parse(str(arch)) == arch


@given(st.text(max_size=12) | st.from_regex(r"[0-9gfx.:af+PTX-]{1,12}(-generic)?", fullmatch=True))
def test_any_text_is_an_arch_in_its_one_spelling_or_an_error(text):
    with contextlib.suppress(ValueError):
        assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("9.x", "9", "90", "09.0", "9.0+ptx", "9.0b", "9.0aa", "9.0 ", "", "sm_90", "9.\u0660"),
        *("gfx90a+PTX", "gfx9", "gfx90a:xnack", "gfx90a:xnack+:xnack-"),
        *("gfx9-0-generic", "gfx-generic", "gfx9-generic:xnack+:xnack+", "gfx9generic"),
    ],
)
def test_refused(text):
    with pytest.raises(ValueError, match=r"is not an arch; expected e\.g\."):
        parse(text)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("7.5", "-gencode=arch=compute_75,code=sm_75"),
        ("9.0a", "-gencode=arch=compute_90a,code=sm_90a"),
        ("10.0f", "-gencode=arch=compute_100f,code=sm_100f"),
        ("12.0+PTX", "-gencode=arch=compute_120,code=[sm_120,compute_120]"),
        ("gfx942", "--offload-arch=gfx942"),
        ("gfx90a:xnack-", "--offload-arch=gfx90a:xnack-"),
        ("gfx9-4-generic", "--offload-arch=gfx9-4-generic -mcode-object-version=6"),
    ],
)
def test_flags(text, flags):
    assert gencode(parse(text)) == flags.split()


def test_order_is_by_number_not_by_text():
    for names in (
        ["7.5", "9.0", "9.0a", "10.0", "12.0", "12.0+PTX"],
        ["gfx90a", "gfx9-4-generic", "gfx942", "gfx1030"],
    ):
        assert [str(arch) for arch in sorted(map(parse, reversed(names)))] == names


def test_backend():
    assert (backend_of(parse("9.0")), backend_of(parse("gfx90a"))) == ("cuda", "rocm")


CUDA = ToolkitRelease("cuda", "13.0")
ROCM = ToolkitRelease("rocm", "6.4")


def nobody():
    raise AssertionError("the GPUs must not be asked for")


def seen(*archs):
    return lambda: VisibleGpus(tuple(Gpu(i, "a GPU", parse(arch)) for i, arch in enumerate(archs)))


def read(text, compiler=CUDA, gpus=nobody):
    found = lists.parse_arch_list(text, compiler, gpus, "HERE")
    return " ".join(map(str, found.archs)), list(found.left_out)


@pytest.mark.parametrize(
    ("text", "release", "archs"),
    [
        ("8.0;9.0+PTX", "13.0", "8.0 9.0+PTX"),
        (" 9.0+PTX ; 8.0\t\n", "13.0", "8.0 9.0+PTX"),
        ("9.0a 10.0f;12.0", "13.0", "9.0a 10.0f 12.0"),
        ("8.0 8.0+PTX", "13.0", "8.0+PTX"),
        ("Pascal", "12.9", "6.0 6.1+PTX"),
        ("Volta", "12.9", "7.0+PTX"),
        ("Turing", "13.0", "7.5+PTX"),
        ("Ampere", "13.0", "8.0 8.6+PTX"),
        ("Ampere+Tegra", "13.0", "8.7"),
        ("Ampere+Tegra+PTX", "13.0", "8.7+PTX"),
        ("Ampere+PTX", "13.0", "8.0 8.6+PTX"),
        ("Ada Hopper", "13.0", "8.9+PTX 9.0+PTX"),
        ("Blackwell", "13.0", "10.0 10.3 12.0 12.1+PTX"),
        ("Hopper;9.0a;8.0", "13.0", "8.0 9.0+PTX 9.0a"),
        # What nvcc means: the oldest, the first of each major, PTX of the newest major.
        ("all-major", "13.0", "7.5 8.0 9.0 10.0 11.0 12.0+PTX"),
        ("all-major", "12.9", "5.0 6.0 7.0 8.0 9.0 10.0 12.0+PTX"),
        ("all-major", "11.8", "3.5 5.0 6.0 7.0 8.0 9.0+PTX"),
        ("all", "13.0", "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0+PTX 12.1"),
        ("all-major 8.6", "13.0", "7.5 8.0 8.6 9.0 10.0 11.0 12.0+PTX"),
        ("gfx942;gfx90a", "6.4", "gfx90a gfx942"),
        ("gfx90a:xnack- gfx90a:xnack+", "6.4", "gfx90a:xnack+ gfx90a:xnack-"),
        ("gfx11-generic", "6.4", "gfx11-generic"),
    ],
)
def test_a_list(text, release, archs):
    backend = "rocm" if text.startswith("gfx") else "cuda"
    assert read(text, ToolkitRelease(backend, release)) == (archs, [])


def test_all_of_rocm_is_every_processor_and_no_generic_target():
    archs, _ = read("all", ROCM)
    assert archs.split() == [name for name in table("rocm")["6.4"] if "generic" not in name]


def test_native_is_what_the_visible_gpus_run():
    assert read("native", CUDA, seen("9.0", "8.0", "9.0")) == ("8.0 9.0", [])
    assert read("native 7.5", ToolkitRelease("cuda", "12.4"), seen("12.0")) == ("7.5 9.0+PTX", [])
    assert read("native", ROCM, seen("gfx90a:sramecc+:xnack-")) == ("gfx90a", [])
    old = ["6.1: CUDA 13.0 cannot compile for it; CUDA 11.8 to 12.9 can"]
    assert read("native", CUDA, seen("6.1", "9.0")) == ("9.0", old)


def test_native_without_a_gpu():
    with pytest.raises(
        UsageError, match=r'^HERE: "native" finds no GPU: no driver; name the archs'
    ):
        read("native", CUDA, lambda: VisibleGpus((), "no driver"))


LEFT_OUT = "{0}: CUDA {1} cannot compile for it; CUDA {2} can".format


@pytest.mark.parametrize(
    ("text", "release", "archs", "left_out"),
    [
        # A chip has the number that the toolkit gives it.
        ("Blackwell+Tegra", "12.8", "10.1", []),
        ("Blackwell+Tegra", "12.9", "10.1", []),
        ("Blackwell+Tegra+PTX", "12.8", "10.1+PTX", []),
        ("Blackwell+Tegra", "13.0", "11.0", []),
        ("Rubin", "13.4", "10.7+PTX", []),
        # PTX is of the newest that is compiled.
        (
            *("Blackwell", "12.8", "10.0 12.0+PTX"),
            [LEFT_OUT(a, "12.8", "12.9 and later") for a in ("10.3", "12.1")],
        ),
        ("Maxwell Volta Turing", "13.0", "7.5+PTX",
            [LEFT_OUT(a, "13.0", "11.8 to 12.9") for a in ("5.0", "5.2+PTX", "7.0+PTX")]),
    ],
)  # fmt: skip
def test_a_generation_as_a_toolkit_compiles_it(text, release, archs, left_out):
    assert read(text, ToolkitRelease("cuda", release)) == (archs, left_out)


@pytest.mark.parametrize(
    ("text", "compiler", "says"),
    [
        ("8.0 9.x", CUDA, '"9.x" is not an arch; did you mean "9.0"'),
        ("pascal", CUDA, '"pascal" is not an arch; did you mean "Pascal"'),
        ("8.0,9.0", CUDA, '"8.0,9.0" is not an arch; did you mean "8.0"'),
        ("Lovelace", CUDA, '"Lovelace" is not an arch; expected e.g. "9.0;12.0+PTX"'),
        ("99", CUDA, '"99" is not an arch; expected e.g. "9.0;12.0+PTX"'),
        ("sm_90", CUDA, '"sm_90" is not an arch; did you mean "9.0"'),
        ("compute_100a", CUDA, '"compute_100a" is not an arch; did you mean "10.0a"'),
        ("9.7", CUDA, 'no release of CUDA knows "9.7"; did you mean "9.0"'),
        ("15.0+PTX", CUDA, 'no release of CUDA knows "15.0"; did you mean "5.0"'),
        ("gfx1104", ROCM, 'no release of ROCm knows "gfx1104"; did you mean "gfx11'),
        ("gfx942", CUDA, '"gfx942" is not an arch of CUDA; expected e.g. "9.0;12.0+PTX"'),
        ("9.0", ROCM, '"9.0" is not an arch of ROCm; expected e.g. "gfx90a;gfx942"'),
        ("all-major", ROCM, '"all-major" is not an arch; did you mean "all"'),
        ("Hopper", ROCM, '"Hopper" is not an arch; '),
        ("native+PTX", CUDA, '"native+PTX" is not an arch; did you mean "native"'),
        ("gfx90a:xnack", ROCM, '"gfx90a:xnack" is not an arch; did you mean "gfx90'),
        ("8.0\x1b[31m", CUDA, '"8.0\\u001b[31m" is not an arch; did you mean "8.0"'),
        ("", CUDA, 'an arch list expected, e.g. "9.0;12.0+PTX"; it is empty'),
        (" ; ", ROCM, 'an arch list expected, e.g. "gfx90a;gfx942"; it is empty'),
    ],
)
def test_refused_in_one_line(text, compiler, says):
    with pytest.raises(UsageError, match=f"^HERE: {re.escape(says)}") as caught:
        read(text, compiler)
    assert "\n" not in str(caught.value)


WORDS = st.sampled_from(["8.0", "9.0a", "12.0+PTX", "Ampere", "Ada+PTX", "all", "native", "gfx942"])


@given(st.text(max_size=20) | st.lists(WORDS | st.text(max_size=6)).map(";".join))
def test_any_text_is_a_list_or_one_line(text):
    for compiler in (CUDA, ROCM):
        error = ""
        try:
            found = lists.parse_arch_list(text, compiler, seen("9.0"), "HERE")
        except UsageError as refused:
            error = str(refused)
        else:
            known = {arch.name for arch in compiler.archs}
            assert {arch.name for arch in found.archs} <= known
            assert list(found.archs) == sorted(set(found.archs))
        assert "\n" not in error
        assert len(error) < 400


TORCHS = st.sampled_from(
    ["8.0", "8.6+PTX", "9.0", "9.0a", "10.0a+PTX", "12.0", "Turing", "Ampere", "Ampere+Tegra"]
    + ["Ampere+Tegra+PTX", "Ada", "Hopper", "Blackwell", "Blackwell+Tegra"]
)


@given(st.lists(TORCHS, min_size=1), st.sampled_from([" ", ";"]))
def test_it_means_what_torch_means(words, separator):
    """Against torch's own reading of the variable, flag by flag."""
    pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils import cpp_extension

    text = separator.join(words)
    with mock.patch.dict(os.environ, TORCH_CUDA_ARCH_LIST=text):
        flags = cpp_extension._get_cuda_arch_flags()
    codes = {flag.partition(",code=")[2] for flag in flags}
    found = lists.parse_arch_list(text, CUDA, nobody, "HERE").archs
    assert codes == {f"sm_{arch.number}" for arch in found} | {
        f"compute_{arch.number}" for arch in found if arch.ptx
    }


def test_every_name_of_torch_is_known():
    cpp_extension = pytest.importorskip(
        "torch.utils.cpp_extension", reason="torch is not installed"
    )
    import inspect

    source = inspect.getsource(cpp_extension._get_cuda_arch_flags)
    torchs = dict(re.findall(r"\('([A-Z][A-Za-z+]+)', *'([0-9.;+PTX]+)'\)", source))
    assert len(torchs) > 10, "torch writes its names in another way"
    for name, listed in torchs.items():
        assert listed == ";".join(map(str, lists._generations()[name])), name


def test_what_torch_takes_is_known():
    cpp_extension = pytest.importorskip(
        "torch.utils.cpp_extension", reason="torch is not installed"
    )
    import inspect

    import torch

    source = inspect.getsource(cpp_extension._get_cuda_arch_flags)
    listed = re.search(r"supported_arches = (\[[^]]*\])", source)
    assert listed, "torch writes its archs in another way"
    minor = ".".join(torch.__version__.split(".")[:2])
    assert set(ast.literal_eval(listed[1])) == set(torch_releases()[minor].archs)


@pytest.mark.parametrize(
    ("minor", "takes", "refuses"),
    [
        ("2.6", "10.0", "12.0"),
        ("2.7", "10.1a", "10.3"),
        ("2.8", "12.1a", "11.0"),
        ("2.9", "11.0", "10.1"),
        ("2.13", "10.3a", "10.7"),
        ("2.14", "10.7a", "8.8"),
        ("2.15", "10.7", "10.0f"),
    ],
)
def test_each_torch_takes_its_own_archs(minor, takes, refuses):
    assert takes in torch_releases()[minor].archs
    assert refuses not in torch_releases()[minor].archs
