"""The list of operators in Python and those that the libraries register are the same."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from inspect import signature

from fusedops.schemas import NAMESPACE, OPS
from fusedops.typed import TYPES

CSRC = Path(__file__).resolve().parents[3] / "csrc" / "torch"
NATIVE = sorted(op.name for op in OPS if op.native)
PUBLIC = [op for op in OPS if op.public]


def text(name: str) -> str:
    return (CSRC / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "head", "implementation"),
    [
        (
            "stable.cpp",
            rf"STABLE_TORCH_LIBRARY_IMPL\({NAMESPACE}, CUDA, m\)",
            r"TORCH_BOX\(&(.*)\)",
        ),
        (
            "aten.cpp",
            rf'torch::Library::IMPL, "{NAMESPACE}", c10::DispatchKey::CUDA',
            r"box<&(.*)>\(\)",
        ),
    ],
)
def test_the_binding_registers_the_tables_native_operators(file, head, implementation):
    assert re.search(head, text(file))
    registered = re.findall(rf'm\.impl\("(\w+)", {implementation}\);', text(file))
    assert all(function == f"Native::{name}" for name, function in registered)
    assert sorted(name for name, _ in registered) == NATIVE


def test_the_module_has_the_tables_public_operators_with_their_arguments():
    defined = re.findall(r'define\(m, "(\w+)", &typed::(\w+),(.*?)\);', text("module.cpp"), re.S)
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
    table = re.findall(r'\{"(\w+)", DType::(\w+), "(\w+)"\}', text("module.cpp"))
    assert all(dtype == name for _, dtype, name in table)
    assert {suffix: f"torch.{name}" for suffix, _, name in table} == {
        suffix: str(dtype) for suffix, dtype in TYPES.items()
    }
