"""The list of operators in Python and those that the libraries register are the same."""

import re
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
    return text(f"families/{family}.cpp")


FAMILIES = [operator.name for operator in EXTENSION.operators]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_registers_its_native_operators(family):
    (opened,) = re.findall(r"^FUSEDOPS_FAMILY\((\w+), m\) \{", binding(family), re.MULTILINE)
    assert opened == family
    alone, with_outs = (
        re.findall(rf'm\.{call}<&\w+::(\w+)>\("(\w+)"\);', binding(family))
        for call in ("op_without_out", "op")
    )
    assert all(function == name for function, name in (*alone, *with_outs))
    names = [*(name for _, name in alone + with_outs), *(f"{name}_out" for _, name in with_outs)]
    assert sorted(names) == sorted(families()[family])


@pytest.mark.parametrize("operator", EXTENSION.operators, ids=lambda operator: operator.name)
def test_each_operator_has_its_familys_file(operator):
    (own,) = (file for file in operator.host if file.startswith("families/"))
    assert own == f"families/{operator.name}.cpp"
    assert operator.bindings == {
        flavour: (f"torch/{flavour}/library.cpp",) for flavour in ("stable", "aten")
    }


def test_the_extension_has_every_family():
    assert list(families()) == FAMILIES
    common = {Path(file).stem for file in EXTENSION.host if file.startswith("families/")}
    assert {path.stem for path in (CSRC / "families").glob("*.cpp")} - common == set(FAMILIES)


def test_the_stable_library_has_a_function_for_each_operator():
    """torch's stable ABI takes functions without data: the list's places are compiled."""
    (most,) = re.findall(r"kMostOperators = (\d+);", text("torch/stable/library.cpp"))
    assert sum(map(len, families().values())) <= int(most)


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_a_public_operator_can_have_entry_points_in_the_modules(op):
    """typed.cpp chooses the operators; Python would silently replace one that it leaves out."""
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
    table = re.findall(r'\{"(\w+)", DType::(\w+), "(\w+)"\}', text("torch/entry_points.h"))
    assert all(dtype == name for _, dtype, name in table)
    assert {suffix: f"torch.{name}" for suffix, _, name in table} == {
        suffix: str(dtype) for suffix, dtype in TYPES.items()
    }
