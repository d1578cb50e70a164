"""Gate `label`: a right labelled wheel holds, one whose name, file or claims lie does not."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_facts import CUDA, PART_CODE, PARTS, failed, have, module, results, then, universal, wheel

from torchwheel.check.facts import WheelFacts
from torchwheel.check.gates import OF_NAMES, findings_of, judge_named
from torchwheel.check.named_claims import case_of
from torchwheel.inspect.inspection import inspect_wheel
from torchwheel.inspect.library_facts import GpuRuntime, GpuTarget, LibraryFacts
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.variant_format import file_text, properties_of
from wheelmaker import PURE, make_wheel

LABELLED = {"label": "cu13", "parts": (PARTS[0], *PARTS[2:])}
OWN = {"nvidia": {"cuda_version_lower_bound": ("13.0",), "sm_arch": ("90_real", "90_virtual")}}


def cu13(folder: Path) -> WheelFacts:
    facts = universal(folder, **LABELLED)
    code = {name: modules for name, modules in facts.gpu_code.read().items() if "rocm" not in name}
    libraries = tuple(one for one in facts.libraries.read() if "rocm" not in one.name)
    return have(gpu_code=code, libraries=libraries)(facts)


def labels(**of_nvidia: tuple[str, ...]) -> Callable[[WheelFacts], WheelFacts]:
    found = {**OWN["nvidia"], **of_nvidia}
    return wheel(labels={"cu13": {"nvidia": {name: own for name, own in found.items() if own}}})


def code(*modules: GpuCode) -> Callable[[WheelFacts], WheelFacts]:
    return lambda facts: have(gpu_code={**facts.gpu_code.read(), CUDA: modules})(facts)


def claimed(**changes: object) -> Callable[[WheelFacts], WheelFacts]:
    return lambda facts: wheel(claims=dataclasses.replace(facts.claims, **changes))(facts)


EXPECTED = "variant.json: nvidia {}: {} expected, got {}"
BOUND = "cuda_version_lower_bound"
PTX_ALONE = (parse("7.5+PTX"),)
LIES = {
    "an arch that no library has": (
        labels(sm_arch=("90_real", "90_virtual", "100_real")),
        EXPECTED.format("sm_arch", "90_real 90_virtual", "100_real 90_real 90_virtual"),
    ),
    "an arch is not named": (
        labels(sm_arch=("90_real",)),
        EXPECTED.format("sm_arch", "90_real 90_virtual", "90_real"),
    ),
    "PTX is not there": (
        code(PART_CODE[CUDA][0]),
        EXPECTED.format("sm_arch", "90_real", "90_real 90_virtual"),
    ),
    "an older driver": (
        labels(cuda_version_lower_bound=("12.0",)),
        EXPECTED.format(BOUND, "13.0", "12.0"),
    ),
    "no bound": (labels(cuda_version_lower_bound=()), EXPECTED.format(BOUND, "13.0", "none")),
    "an upper bound": (
        labels(cuda_version_upper_bound=("14",)),
        EXPECTED.format("cuda_version_upper_bound", "none", "14"),
    ),
    "PTX of a newer toolkit": (
        then(
            claimed(parts=(dataclasses.replace(PARTS[0], archs=PTX_ALONE), *PARTS[2:])),
            code(
                module("sass", "7.5"),
                GpuCode("ptx", parse("7.5"), ptx_version="9.2"),
            ),
            labels(sm_arch=("75_real", "75_virtual")),
        ),
        EXPECTED.format(BOUND, "13.2", "13.0"),
    ),
    "another label in the name": (
        wheel(label="cu12"),
        "one label expected, got cu12 of the file name, cu13 of torchwheel.json, cu13 of variant",
    ),
    "no label in the name": (wheel(label=None), "got none of the file name, cu13 of torchwheel"),
    "no variant.json": (wheel(labels=None), "cu13 of torchwheel.json, none of variant.json"),
    "two labels": (wheel(labels={"a": {}, "b": {}}), "one label expected, got a, b"),
    "another claim": (claimed(label="cu12"), "got cu13 of the file name, cu12 of torchwheel.json"),
    "null with kernels": (
        then(claimed(label="null"), wheel(label="null", labels={"null": {}})),
        "label null: GPU code for sm_90; none expected",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_one_line(tmp_path: Path, lie: str) -> None:
    change, says = LIES[lie]
    found = failed(change(cu13(tmp_path)))
    assert says in found["label"]
    assert "\n" not in found["label"]


def test_a_right_label(tmp_path: Path) -> None:
    facts = cu13(tmp_path)
    assert failed(facts) == {}
    assert results(facts)["label"].says == (
        "cu13: nvidia cuda_version_lower_bound 13.0; nvidia sm_arch 90_real 90_virtual"
    )
    null = dataclasses.replace(PURE, variant="pure-null", label="null")
    whole = {
        result.name: result.says for result in judge_named(make_wheel(tmp_path, claims=null))[0]
    }
    assert whole["label"] == "holds"
    assert results(universal(tmp_path))["label"].says == "no label"


# Anybody's wheel.

SASS = GpuTarget("sass", parse("9.0a"), 1, 2, 10, 10, ("none",))
PTX = GpuTarget("ptx", parse("9.0"), 1, None, 10, 10, ("none",))
RUNTIME = GpuRuntime("shared", "cuda", "libcudart.so.12", "12")
LIBRARY = LibraryFacts("demo/_C.so", "x86_64", targets=(SASS, PTX), runtimes=(RUNTIME,))
RIGHT = {"cuda_version_lower_bound": ("12.0",), "sm_arch": ("90_real", "90_virtual")}
ANYBODYS = {
    "right": ({"nvidia": RIGHT}, []),
    "another arch": (
        {"nvidia": {**RIGHT, "sm_arch": ("90_real", "100_real", "90_virtual")}},
        ["error sm_arch has 100_real, and no library has such code"],
    ),
    "an arch too few": (
        {"nvidia": {**RIGHT, "sm_arch": ("90_real",)}},
        ["warning sm_arch lacks 90_virtual, which its libraries have"],
    ),
    "an older driver": (
        {"nvidia": {**RIGHT, "cuda_version_lower_bound": ("11.8",)}},
        ["error cuda_version_lower_bound is 11.8, and its runtime is of CUDA 12"],
    ),
    "no driver": (
        {"nvidia": {**RIGHT, "cuda_version_upper_bound": ("12",)}},
        ["error no driver is for CUDA from 12.0 on and before 12"],
    ),
    "no arch": (
        {"nvidia": {"cuda_version_lower_bound": ("12.0",)}},
        ["warning the label names no sm_arch, so every machine may take it"],
    ),
    "another provider": (
        {"nvidia": RIGHT, "x86_64": {"level": ("v3",)}},
        ['warning not judged: level of the provider "x86_64"'],
    ),
}


def named(folder: Path, labels: dict[str, object], library: LibraryFacts = LIBRARY) -> list[str]:
    made = make_wheel(folder, claims=dataclasses.replace(PURE, label="cu12"), requires=())
    label = "null" if labels == {"null": {}} else "cu12"
    found = inspect_wheel(made.rename(made.with_name(made.name.replace("cu12", label))))
    facts = dataclasses.replace(found, claims=None, labels=labels, libraries=(library,), faults={})
    rows = (one for one in findings_of(case_of(facts)) if one.rule == "label")
    return [f"{one.level} {one}" for one in rows]


@pytest.mark.parametrize("name", ANYBODYS)
def test_a_label_of_anybody(tmp_path: Path, name: str) -> None:
    properties, says = ANYBODYS[name]
    assert named(tmp_path, {"cu12": properties}) == says


def test_null_promises_no_code(tmp_path: Path) -> None:
    assert named(tmp_path, {"null": {}}) == [
        "error demo/_C.so: the label null promises no GPU code, and there is some"
    ]
    unread = dataclasses.replace(LIBRARY, targets=(), targets_problem="cut short")
    assert "error demo/_C.so: not judged: cannot be read" in named(tmp_path, {"null": {}}, unread)


HOSTILE: dict[str, tuple[Callable[[str], str], str]] = {
    "nested": (lambda _: "[" * 10_000, "variant.json: expected at most 32 levels, found more"),
    "another label": (
        lambda text: text.replace("cu13", "cu14"),
        "got cu13 of the file name, cu13 of torchwheel.json, cu14 of variant.json",
    ),
    "twice": (
        lambda text: text.replace('"variants": {', '"variants": {"cu13": {},'),
        'expected each key once, found "cu13" twice',
    ),
    "unknown provider": (
        lambda text: json.dumps({**json.loads(text), "providers": {}}),
        'default-priorities.namespace: expected the providers, none, found "nvidia", "amd"',
    ),
    "not UTF-8": (lambda _: "\udcff", "variant.json: expected UTF-8, found byte 0xff at 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_finding(tmp_path: Path, name: str) -> None:
    change, says = HOSTILE[name]
    claims = Claims("universal-cu13", "universal", "2.6", **LABELLED)  # type: ignore[arg-type]
    text = change(file_text({"cu13": properties_of(claims)}))

    def bend(members: dict[str, bytes]) -> None:
        members["demo-1.0.0.dist-info/variant.json"] = text.encode("utf-8", "surrogateescape")

    path = make_wheel(tmp_path, claims=dataclasses.replace(PURE, label="cu13"), bend=bend)
    (found,) = [one for one in judge_named(path)[1] if one.rule == "label"]
    assert says in str(found)
    assert str(found).isprintable()


def test_the_name_of_17_characters_is_one_finding(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    path = path.rename(path.with_name(f"{path.stem}-0123456789abcdefg.whl"))
    (found,) = [one for one in judge_named(path)[1] if one.rule == "metadata"]
    assert str(found).endswith('found "0123456789abcdefg", of 17 characters')
    assert list(OF_NAMES).count("label") == 1
