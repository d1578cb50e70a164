import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.arch.model import CudaArch, RocmArch, backend_of, gencode, parse

CUDA = st.builds(
    CudaArch,
    major=st.integers(1, 99),
    minor=st.integers(0, 9),
    suffix=st.sampled_from(["", "a", "f"]),
    ptx=st.booleans(),
)
ROCM = st.builds(
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


@given(CUDA | ROCM | GENERIC)
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
