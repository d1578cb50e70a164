"""Names, labels and files of labelled wheels: what is written, and what of others is refused."""

import json

import pytest

from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.variant_format import (
    arch_values,
    driver_bound,
    file_text,
    index_file_name,
    labelled_name,
    misfit,
    properties_of,
    read_labels,
    split_name,
)

PLAIN = "demo_kernels-1.0.0-py3-none-manylinux_2_17_x86_64.whl"
BUILT = "demo-1.0-1-py3-none-any.whl"
LABEL = "expected 1 to 16 characters, of 0-9, a-z, . and _, found"


@pytest.mark.parametrize("label", ["cu13", "null", "cu13_sm90", "7", "0123456789abcdef", "a.b_c"])
@pytest.mark.parametrize("file", [PLAIN, BUILT])
def test_a_label_is_read_back(file, label):
    name = labelled_name(file, label)
    assert name == f"{file[:-4]}-{label}.whl"
    assert split_name(name) == (file, label)
    assert split_name(file) == (file, None)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("0123456789abcdefg", f'label: {LABEL} "0123456789abcdefg", of 17 characters'),
        ("cu13+sm90", f'label: {LABEL} "cu13+sm90"'),
        ("CU13", f'label: {LABEL} "CU13"'),
        ("", f'label: {LABEL} ""'),
        ("cu\u0661", f'label: {LABEL} "cu\u0661"'),
    ],
)
def test_a_label_that_is_none(label, says):
    with pytest.raises(ValueError, match="label: ") as error:
        split_name(f"demo-1.0-py3-none-any-{label}.whl")
    assert str(error.value) == says


def test_the_file_of_an_index_has_the_name_and_the_version():
    assert index_file_name(labelled_name(PLAIN, "cu13")) == "demo_kernels-1.0.0-variants.json"


@pytest.mark.parametrize(
    ("release", "archs", "bound"),
    [
        ("12.4", "6.0 7.0 7.5 8.0 8.6 9.0+PTX", "12.0"),
        ("13.2", "7.5 8.0 8.6 8.9 9.0 10.0 12.0+PTX", "13.0"),
        # CUDA 12.4 knows 9.0, which has the PTX of 8.0 alone, and 13.2 knows 10.0.
        ("12.4", "8.0+PTX", "12.4"),
        ("13.2", "9.0+PTX", "13.2"),
        # CUDA 12.5 and 12.6 write one version of PTX.
        ("12.6", "8.0+PTX", "12.5"),
        # No other GPU runs code of 9.0a.
        ("13.2", "9.0a+PTX", "13.0"),
        ("11.8", "7.0", "11.0"),
    ],
)
def test_bound_of_the_driver(release, archs, bound):
    assert driver_bound(release, list(map(parse, archs.split()))) == bound


@pytest.mark.parametrize(
    ("archs", "values"),
    [
        ("10.0 9.0a 8.0 12.0+PTX", "80_real 90a_real 100_real 120_real 120_virtual"),
        ("gfx1100 gfx90a:xnack- gfx942", "gfx90a gfx942 gfx1100"),
        ("gfx9-4-generic", "gfx942 gfx950"),
    ],
)
def test_values_of_archs(archs, values):
    assert " ".join(arch_values(map(parse, archs.split()))) == values


def claims(*toolkits: tuple[str, str, str]) -> Claims:
    parts = (
        Part("kernels", name, f"{name}.so", "", backend=backend, toolkit_version=version,
             archs=tuple(map(parse, archs.split())))
        for backend, version, archs in toolkits
        for name in [f"{backend}{version}"]
    )  # fmt: skip
    return Claims("universal-x", "universal", "2.6", parts=tuple(parts), label="x")


def test_properties_of_claims():
    assert properties_of(claims()) == {}
    assert properties_of(claims(("cuda", "13.0", "9.0"), ("cuda", "13.2", "12.0+PTX"))) == {
        "nvidia": {
            "cuda_version_lower_bound": ("13.0",),
            "sm_arch": ("90_real", "120_real", "120_virtual"),
        }
    }
    assert properties_of(claims(("rocm", "6.4", "gfx942"), ("rocm", "7.2", "gfx942 gfx950"))) == {
        "amd": {"gfx_arch": ("gfx942", "gfx950")}
    }


CU13 = {"nvidia": {"cuda_version_lower_bound": ("13.0",), "sm_arch": ("90_real",)}}
AMD = {"amd": {"gfx_arch": ("gfx942",)}}


@pytest.mark.parametrize("labels", [{"null": {}}, {"cu13": CU13}, {"a": AMD, "b": CU13}])
def test_what_is_written_is_read(labels):
    assert read_labels(file_text(labels), "x") == labels


CU12 = {"nvidia": {"cuda_version_lower_bound": ("12.0",), "sm_arch": ("80_real", "90_virtual")}}
BOUNDED = {"nvidia": {"cuda_version_lower_bound": ("12",), "cuda_version_upper_bound": ("13",)}}


@pytest.mark.parametrize(
    ("properties", "cuda", "gpus", "says"),
    [
        (CU12, "12.0", "8.6", None),
        (CU12, "13.2", "12.0", None),  # by PTX
        (CU12, "12.0", "7.5", "sm_arch 80_real 90_virtual, and here: GPUs: 7.5"),
        (CU12, "11.8", "8.0", "cuda_version_lower_bound 12.0, and here: a driver for CUDA 11.8"),
        (CU12, None, "", "cuda_version_lower_bound 12.0, and here: a driver for CUDA none"),
        (CU12, "13.0", "gfx942", "sm_arch 80_real 90_virtual, and here: GPUs: none"),
        (BOUNDED, "12.9", "8.0", None),
        (BOUNDED, "13.0", "8.0", "cuda_version_upper_bound 13, and here: a driver for CUDA 13.0"),
        (AMD, None, "gfx90a gfx942:xnack-", None),
        (AMD, None, "gfx90a", "gfx_arch gfx942, and here: GPUs: gfx90a"),
        ({"x86_64": {"level": ("v3",)}}, None, "", None),
        ({"nvidia": {"sm_arch": ("odd", "1_real")}}, "13.0", "9.0", "sm_arch odd 1_real, and"),
        ({}, None, "", None),
    ],
)
def test_misfit(properties, cuda, gpus, says):
    found = misfit(properties, cuda, list(map(parse, gpus.split())))
    assert found is None if says is None else says in found


def document(**changes: object) -> dict[str, object]:
    return {**json.loads(file_text({"cu13": CU13})), **changes}


def said(of_cu13: object, *, label: str = "cu13") -> str:
    return json.dumps(document(variants={label: of_cu13}))


MALFORMED = {
    "nested": ("[" * 10_000, "expected at most 32 levels, found more"),
    "nested values": (
        said(json.loads('{"a":' * 40 + "1" + "}" * 40)),
        "variants.cu13: expected at most 32 levels, found more",
    ),
    "no JSON": ("{", "expected JSON, found at line 1, column 2: Expecting property name"),
    "a list": ("[]", "expected an object, found a list"),
    "nothing": ("{}", 'expected key "default-priorities", found none'),
    "label twice": (
        file_text({"cu13": CU13}).replace('"variants": {', '"variants": {"cu13": {},'),
        'expected each key once, found "cu13" twice',
    ),
    "17 characters": (
        said(CU13, label="0123456789abcdefg"),
        f'variants: label: {LABEL} "0123456789abcdefg", of 17 characters',
    ),
    "unknown provider": (
        said({"evil": {"gpu": ["1"]}}),
        'variants."cu13": expected a provider of "nvidia", "amd", found "evil"',
    ),
    "providers without priority": (
        json.dumps(document(**{"default-priorities": {"namespace": []}})),
        'default-priorities.namespace: expected the providers, "nvidia", "amd", found none',
    ),
    "no provider at all": (
        json.dumps(
            document(**{"default-priorities": {"namespace": []}}, providers={}, variants={})
        ),
        "default-priorities.namespace: expected the providers, none, found none",
    ),
    "null with properties": (
        said(CU13, label="null"),
        'variants."null": expected no property, found nvidia',
    ),
    "no properties": (said({}), 'variants."cu13": expected a property, or the label null, found'),
    "no feature": (said({"nvidia": {}}), 'variants."cu13".nvidia: expected a feature, found none'),
    "no value": (
        said({"nvidia": {"sm_arch": []}}),
        'variants."cu13".nvidia.sm_arch: expected a value, found none',
    ),
    "value twice": (
        said({"nvidia": {"sm_arch": ["90_real", "90_real"]}}),
        'variants."cu13".nvidia.sm_arch: expected each value once, found "90_real" twice',
    ),
    "a value's form": (
        said({"nvidia": {"sm_arch": ["90\nreal"]}}),
        'variants."cu13".nvidia.sm_arch[0]: expected e.g. "90_real", found "90\\nreal"',
    ),
    "a feature's form": (
        said({"nvidia": {"sm\narch": ["1"]}}),
        'variants: expected the name of a feature, found "sm\\narch"',
    ),
    "a number": (said({"nvidia": {"sm_arch": [90]}}), "variants: cu13.nvidia.sm_arch[0]: expected"),
    "no labels": (json.dumps(document(variants={})), "variants: expected a label, found none"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_in_one_line(name):
    content, says = MALFORMED[name]
    with pytest.raises(MalformedError) as error:
        read_labels(content, "x/variant.json")
    line = str(error.value)
    assert line.startswith("x/variant.json: ")
    assert line.endswith("; make the wheel again")
    assert line.isprintable()
    assert says in line
