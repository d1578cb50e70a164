"""The operators that Python lists, and the native sources: what they register, call and export."""

import collections
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from fusedops.extension import EXTENSION  # noqa: E402
from fusedops.registry import NAMESPACE, OPS, families  # noqa: E402
from fusedops.typed import TYPES  # noqa: E402

CSRC = Path(__file__).resolve().parents[3] / "csrc"
PUBLIC = [op for op in OPS if op.public]


def text(name: str) -> str:
    return (CSRC / name).read_text(encoding="utf-8")


def binding(family: str) -> str:
    return "".join(path.read_text() for path in sorted(files(EXTENSION.operator(family).host)))


FAMILIES = [operator.name for operator in EXTENSION.operators]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_registers_its_native_operators(family):
    opened = re.findall(r"^FUSEDOPS_FAMILY\((\w+), m\) \{", binding(family), re.MULTILINE)
    assert set(opened) == {family}
    alone, with_outs = (
        re.findall(rf'm\.{call}<&\w+::(\w+)>\("(\w+)"\);', binding(family))
        for call in ("op_without_out", "op")
    )
    assert all(function == name for function, name in (*alone, *with_outs))
    names = [*(name for _, name in alone + with_outs), *(f"{name}_out" for _, name in with_outs)]
    assert sorted(names) == sorted(families()[family])


@pytest.mark.parametrize("operator", EXTENSION.operators, ids=lambda operator: operator.name)
def test_each_operator_has_its_familys_files(operator):
    assert operator.host == (f"families/{operator.name}*.cpp",)
    assert (CSRC / "families" / f"{operator.name}.cpp").is_file()
    assert operator.bindings == {
        flavour: (f"torch/{flavour}/library.cpp",) for flavour in ("stable", "aten")
    }


def test_the_extension_has_every_family():
    assert list(families()) == FAMILIES
    globs = (*EXTENSION.host, *(glob for one in EXTENSION.operators for glob in one.host))
    built = [path for path in files(globs) if path.parent.name == "families"]
    assert sorted(built) == sorted((CSRC / "families").glob("*.cpp"))  # each of them once


def test_each_file_with_kernels_is_listed_by_a_family():
    listed = {file for operator in EXTENSION.operators for file in operator.device}
    assert listed == {f"kernels/{path.name}" for path in (CSRC / "kernels").glob("*.cu")}


def test_the_stable_library_has_a_function_for_each_operator():
    """torch's stable ABI takes functions without data: the list's places are compiled."""
    (most,) = re.findall(r"kMostOperators = (\d+);", text("torch/stable/library.cpp"))
    assert sum(map(len, families().values())) <= int(most)


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_a_public_operator_can_have_entry_points_in_the_modules(op):
    """Python would silently take the calls of one that they leave out."""
    schema = torch._C.parse_schema(f"{NAMESPACE}::{op.schema}")
    assert not op.name.endswith(("_backward", "_"))
    kinds = {str(argument.real_type).removeprefix("Optional[") for argument in schema.arguments}
    known = {"Tensor", "float", "int", "SymInt", "bool", "str"}
    assert {kind.rstrip("]") for kind in kinds} <= known
    assert {str(result.type) for result in schema.returns} <= {"Tensor"}
    limits = re.findall(r"kMost(\w+) = (\d+)", text("families/registrar.h"))
    most = {name: int(number) for name, number in limits}
    assert len(schema.arguments) <= most["Arguments"]
    assert len(schema.returns) <= most["Results"]


def test_the_modules_have_pythons_types():
    table = re.findall(r'\{"(\w+)", DType::(\w+), "\2"\}', text("torch/python/entry_point.h"))
    assert {suffix: f"torch.{name}" for suffix, name in table} == {
        suffix: str(dtype) for suffix, dtype in TYPES.items()
    }


# Each family's own kernel library has every kernel that its operators and checks call. A build at
# first use makes such a library; one that lacks a kernel would fail at a call on a GPU. That the
# host side of a family is whole is the word of integration/test_jit_families.py.

SPLIT = EXTENSION.split


def files(globs: Iterable[str]) -> Iterator[Path]:
    for pattern in globs:
        yield from CSRC.glob(pattern)


def with_headers(paths: Iterable[Path]) -> set[Path]:
    """The files, and the headers of csrc that they include."""
    found: set[Path] = set()
    queue = list(paths)
    while queue:
        path = queue.pop()
        if path not in found:
            found.add(path)
            names = re.findall(r'^#include "([\w./]+)"', path.read_text(), re.MULTILINE)
            queue += [CSRC / name for name in names if (CSRC / name).is_file()]
    return found


CALL = re.compile(r"\w_KERNEL\([^;]*?, (\w+)\)")
EXPORT = re.compile(r"^\w+_EXPORT\((\w+)\)", re.MULTILINE)


def named(macro: re.Pattern[str], paths: Iterable[Path]) -> set[str]:
    """The kernels that the macro names, outside its definition."""
    text = "".join(re.sub(r"(?m)^#define.*(\\\n.*)*", "", path.read_text()) for path in paths)
    return set(macro.findall(text))


@pytest.mark.parametrize("family", EXTENSION.operators, ids=lambda family: family.name)
def test_a_family_has_the_kernels_that_it_calls(family):
    host = (*EXTENSION.host, *family.host, *family.bindings["stable"], *family.bindings["aten"])
    called = named(CALL, with_headers(files(set(host) - set(SPLIT.kernels))))
    exported = named(EXPORT, files((*family.device, *SPLIT.kernels)))
    assert called
    assert called <= exported


def test_a_kernel_of_another_family_is_seen():
    gemm = EXTENSION.operator("gemm")
    called = named(CALL, with_headers(files(gemm.host)))
    assert {"bias_act", "fill_with_zeros"} <= called
    assert "bias_act" not in named(EXPORT, files(EXTENSION.operator("softmax").device))


# What crosses from a kernel library: no exception, and nothing of the C++ library. The types of
# exported functions are checked where they are compiled (<torchwheel/kernels.h>).

SOURCES = sorted([*(CSRC / "kernels").iterdir(), *(CSRC / "platform").glob("*.h")])
# Functions and types without memory of their own.
HARMLESS = re.compile(
    r"u?int(8|16|32|64|ptr)_t|size_t|clamp|min|max|log2|memcpy|memset|numeric_limits"
    r"|conditional_t|integral_constant|(true|false)_type|is_\w+_v"
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_kernels_throw_nothing_and_hold_no_object_of_the_library(source):
    code = re.sub(r"//.*", "", source.read_text(encoding="utf-8"))
    assert not re.findall(r"\b(throw|try|catch|new|delete)\b", code)
    used = set(re.findall(r"\bstd::(\w+)", code))
    assert not {name for name in used if not HARMLESS.fullmatch(name)}


PLATFORM = re.compile(r"__CUDA|__HIP|FUSEDOPS_MODEL|\b(cuda|hip)[A-Z]\w+")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_only_the_platform_knows_cuda_from_hip(source):
    if source.parent.name == "kernels":
        code = re.sub(r"//.*", "", source.read_text(encoding="utf-8"))
        assert not PLATFORM.findall(code)


TYPE = re.compile(
    r"^ *(?:struct|class|enum class)\s+(?:alignas\(.*\) )?(\w+)\b(?!<)[^;]*(?:\{|$)", re.MULTILINE
)


def test_a_name_of_a_type_means_one_thing():
    """A specialisation has its template's name."""
    places = collections.defaultdict(list)
    for source in sorted(path for path in CSRC.rglob("*") if path.is_file()):
        for name in TYPE.findall(re.sub(r"//.*", "", source.read_text(encoding="utf-8"))):
            places[name].append(source.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    assert {"Schedule", "RowSlice", "Peak", "GpuModel", "BoundCall"} <= set(places)


def test_no_kernel_asks_for_more_blocks_than_older_gpus_have():
    """The compiler refuses them for GPUs that are seldom compiled for: 512 x 3 threads on 7.5."""
    for path in (CSRC / "kernels").glob("*.cu*"):
        bounds = re.findall(r"__launch_bounds__\((.*)\)$", path.read_text(), re.MULTILINE)
        assert not [one for one in bounds if "," in one and "FUSEDOPS_FULL_SM" not in one], path
