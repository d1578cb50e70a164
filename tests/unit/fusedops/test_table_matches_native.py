"""The list of operators in Python and those that the libraries register are the same."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from fusedops.extension import EXTENSION  # noqa: E402
from fusedops.schemas import NAMESPACE, OPS  # noqa: E402
from fusedops.typed import TYPES  # noqa: E402

CSRC = Path(__file__).resolve().parents[3] / "csrc" / "torch"
PUBLIC = [op for op in OPS if op.public]


def text(name: str) -> str:
    return (CSRC / name).read_text(encoding="utf-8")


FAMILIES = {operator.name: operator for operator in EXTENSION.operators}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("file", "head", "implementation"),
    [
        (
            "stable/{}.cpp",
            r"STABLE_TORCH_LIBRARY_IMPL\(fusedops, CUDA, m\)",
            r"TORCH_BOX\(&(.*)\)",
        ),
        ("aten/{}.h", r"register_{}\(Registrar m\)", r"box<&(.*)>\(\)"),
    ],
)
def test_each_binding_registers_the_familys_native_operators(family, file, head, implementation):
    binding = text(file.format(family))
    assert re.search(head.replace("{}", family), binding)
    registered = re.findall(rf'm\.impl\("(\w+)", {implementation}\);', binding)
    assert all(function == f"Native::{name}" for name, function in registered)
    of_family = sorted(op.name for op in OPS if op.native and op.family == family)
    assert sorted(name for name, _ in registered) == of_family


def test_every_family_is_registered_by_the_module_and_by_itself():
    assert {op.family for op in OPS if op.native} == set(FAMILIES)
    assert re.findall(r"register_(\w+)\(m\);", text("aten/typed.cpp")) == list(FAMILIES)
    for family in FAMILIES:
        call = f"fusedops::register_{family}(m);"
        assert f"TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {{ {call} }}" in text(f"aten/{family}.cpp")


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_a_public_operator_can_have_entry_points_in_the_module(op):
    """As schema.h and typed.cpp choose them; elsewhere Python's would take their place unseen."""
    schema = torch._C.parse_schema(f"{NAMESPACE}::{op.schema}")
    assert not op.name.endswith(("_backward", "_"))
    kinds = {str(argument.real_type).removeprefix("Optional[") for argument in schema.arguments}
    assert {kind.rstrip("]") for kind in kinds} <= {
        "Tensor",
        "float",
        "int",
        "SymInt",
        "bool",
        "str",
    }
    assert {str(result.type) for result in schema.returns} <= {"Tensor"}
    limits = re.findall(r"kMost(\w+) = (\d+)", text("aten/typed.h"))
    most = {name: int(number) for name, number in limits}
    assert len(schema.arguments) <= most["Arguments"]
    assert len(schema.returns) <= most["Results"]


def test_the_module_has_pythons_types():
    table = re.findall(r'\{"(\w+)", DType::(\w+), "(\w+)"\}', text("aten/module.cpp"))
    assert all(dtype == name for _, dtype, name in table)
    assert {suffix: f"torch.{name}" for suffix, _, name in table} == {
        suffix: str(dtype) for suffix, dtype in TYPES.items()
    }
