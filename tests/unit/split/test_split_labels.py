"""What a label keeps of a container, and the labels of a wheel."""

import itertools

import pytest

from torchwheel.split.labels import (
    NEWER,
    NamedArchs,
    SplitLabel,
    default_labels,
    kept,
    make_labels,
    parse_labels,
    properties_of_label,
    taken,
)
from torchwheel_runtime.arch.model import CudaArch, parse
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.fatbin import FatbinEntry


def arch(text: str) -> CudaArch:
    found = parse(text)
    assert isinstance(found, CudaArch)
    return found


def archs(text: str) -> tuple[CudaArch, ...]:
    return tuple(map(arch, text.split()))


def entries(text: str) -> tuple[FatbinEntry, ...]:
    """Modules such as "8.0 9.0a ptx8.0"."""
    return tuple(
        FatbinEntry(
            "ptx" if word.startswith("ptx") else "sass",
            arch(word.removeprefix("ptx")),
            *("none", 64 * number + 64, 8, 8, 64 * number, 64 * number + 72),
        )
        for number, word in enumerate(text.split())
    )


def text_of(found: tuple[FatbinEntry, ...]) -> str:
    return " ".join(f"{'ptx' if one.kind == 'ptx' else ''}{one.arch}" for one in found)


@pytest.mark.parametrize(
    ("container", "gpu", "expected"),
    [
        ("7.5 8.0 8.6 9.0", "8.6", "8.6"),
        ("7.5 8.0 8.6 9.0", "8.9", "8.6"),
        ("8.6 8.0 9.0", "8.0", "8.0"),
        # Of "9.0" and "9.0a" either may be taken.
        ("9.0 9.0a", "9.0", "9.0 9.0a"),
        ("10.0a 10.0f", "10.3", "10.0f"),
        ("10.0f 10.3a", "10.3", "10.3a"),
        ("10.0a", "10.3", ""),
        # Machine code goes before PTX, however new.
        ("9.0 ptx9.0 ptx10.0", "10.0", "ptx10.0"),
        ("8.0 ptx8.0", "9.0", "ptx8.0"),
        ("8.0 ptx8.0", "8.9", "8.0"),
        ("ptx7.5 ptx8.0 ptx12.0", "9.0", "ptx8.0"),
        ("ptx9.0a", "10.0", ""),
        # Before CUDA 13 Thor was 10.1.
        ("10.0 10.1", "11.0", "10.1"),
        ("8.0 9.0", "7.5", ""),
        ("", "9.0", ""),
        ("9.0 12.0 ptx9.0 ptx12.0", str(NEWER), "ptx12.0"),
    ],
)
def test_what_the_driver_takes(container: str, gpu: str, expected: str) -> None:
    assert text_of(taken(entries(container), arch(gpu))) == expected


def test_a_label_keeps_what_each_of_its_gpus_takes_in_its_order() -> None:
    label = SplitLabel("sm8x", archs("8.0 8.6 8.9"), ptx=False)
    assert text_of(kept(entries("9.0 8.6 ptx9.0 8.0"), label)) == "8.6 8.0"
    newer = SplitLabel("sm9x", archs("9.0"), ptx=True)
    assert text_of(kept(entries("9.0 8.6 ptx8.0 ptx9.0"), newer)) == "9.0 ptx9.0"
    assert kept(entries("9.0"), label) == ()


def gpus_of(named: NamedArchs, code: str) -> dict[str, str]:
    return {
        one.name: " ".join(map(str, one.gpus)) + (" and newer" if one.ptx else "")
        for one in make_labels(named, frozenset(archs(code)))
    }


def test_the_usual_labels_are_of_the_major_versions() -> None:
    named = default_labels(archs("8.6 8.0 9.0 10.1 12.0"), has_ptx=True)
    assert gpus_of(named, "8.0 8.6 9.0 10.1 12.0") == {
        "sm8x": "8.0 8.6 8.8 8.9",
        "sm9x": "9.0",
        "sm11x": "10.1 11.0",
        "sm12x": "12.0 12.1 and newer",
    }
    assert gpus_of(default_labels(archs("8.6"), has_ptx=False), "8.6") == {"sm8x": "8.6 8.8 8.9"}
    assert default_labels((), has_ptx=True) == {}


def test_a_gpu_is_of_the_label_with_the_best_code() -> None:
    named = parse_labels(["a=8.0", "b=8.6;9.0+PTX"])
    assert gpus_of(named, "7.5 8.0 8.6 9.0") == {"a": "8.0", "b": "8.6 8.8 8.9 9.0 and newer"}
    # An arch that no table of ours has.
    assert gpus_of(parse_labels(["x=13.0"]), "13.0") == {"x": "13.0"}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["sm90"], '--label: expected e.g. sm90=9.0, found "sm90"'),
        (["sm90="], '--label: expected e.g. sm90=9.0, found "sm90="'),
        (["cu12-sm90=9.0"], "--label: label: expected 1 to 16 characters"),
        (["null=9.0"], "as null is the wheel without machine code"),
        (["a=9.0", "a=8.0"], "--label a: expected another name, as a is there twice"),
        (["a=9.x"], '--label a: "9.x" is not an arch'),
        (["a=9.0a"], 'expected a GPU of NVIDIA, e.g. 9.0, found "9.0a"'),
        (["a=gfx942"], 'expected a GPU of NVIDIA, e.g. 9.0, found "gfx942"'),
        (["a=7.0"], "--label a: expected one of the wheel's 8.0, 9.0; found 7.0"),
        (["a=9.0", "b=8.0 9.0"], "--label b: 9.0 is in the label a already"),
    ],
)
def test_a_wrong_label_is_one_line(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError) as error:
        make_labels(parse_labels(texts), frozenset(archs("8.0 9.0")))
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("label", "code", "values"),
    [
        (SplitLabel("sm8x", archs("8.0 8.6 8.9"), ptx=False), "8.0 8.6", "80_real 86_real"),
        # What is there for want of better is not named: a GPU of 8.0 would take the wheel for it.
        (SplitLabel("sm9x", archs("9.0"), ptx=False), "9.0a ptx8.0", "90_real"),
        (SplitLabel("sm9x", archs("9.0"), ptx=True), "9.0 ptx9.0 ptx8.0", "90_real 90_virtual"),
        (SplitLabel("sm9x", archs("9.0"), ptx=True), "9.0 ptx9.0a", "90_real"),
        (SplitLabel("sm9x", archs("9.0"), ptx=False), "9.0 ptx9.0", "90_real"),
        (SplitLabel("sm10x", archs("10.0 12.0"), ptx=False), "12.0 10.0f", "100_real 120_real"),
    ],
)
def test_what_a_label_promises(label: SplitLabel, code: str, values: str) -> None:
    assert properties_of_label(label, entries(code), "12.0") == {
        "nvidia": {"cuda_version_lower_bound": ("12.0",), "sm_arch": tuple(values.split())}
    }


def test_every_gpu_of_a_wheel_is_in_one_usual_label() -> None:
    """Also where code is bound to its chip."""
    code = archs("7.5 8.0 8.7 9.0 10.0 12.0")
    labels = make_labels(default_labels(code, has_ptx=False), frozenset(code))
    gpus = list(itertools.chain.from_iterable(label.gpus for label in labels))
    assert len(gpus) == len({*gpus})
    assert {*code} <= {*gpus}
