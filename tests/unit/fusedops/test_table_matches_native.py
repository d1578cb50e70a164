"""The list of operators in Python and those that the libraries register are the same."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from inspect import signature

from fusedops.extension import EXTENSION
from fusedops.schemas import OPS
from fusedops.typed import TYPES

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
        ("aten/{}.h", r"register_{}\(torch::Library& m\)", r"box<&(.*)>\(\)"),
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


def test_the_module_has_the_tables_public_operators_with_their_arguments():
    module = text("aten/module.cpp")
    defined = re.findall(r'define\(m, "(\w+)", &typed::(\w+),(.*?)\);', module, re.S)
    assert all(name == function for name, function, _ in defined)
    found = {name: extra for name, _, extra in defined}
    assert set(found) == {op.name for op in PUBLIC}
    for op in PUBLIC:
        names = re.findall(r'arg\("(\w+)"\)', found[op.name])
        assert names == list(signature(op.reference).parameters)
        for parameter in signature(op.reference).parameters.values():
            if parameter.default is not parameter.empty:
                default = str(parameter.default)
                assert re.search(rf'arg\("{parameter.name}"\) = "?{default}"?', found[op.name])


def test_the_module_has_pythons_types():
    table = re.findall(r'\{"(\w+)", DType::(\w+), "(\w+)"\}', text("aten/module.cpp"))
    assert all(dtype == name for _, dtype, name in table)
    assert {suffix: f"torch.{name}" for suffix, _, name in table} == {
        suffix: str(dtype) for suffix, dtype in TYPES.items()
    }
