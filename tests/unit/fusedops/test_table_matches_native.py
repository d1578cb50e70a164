"""The list of operators in Python and the one the library registers are the same."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from fusedops.schemas import NAMESPACE, OPS

STABLE = Path(__file__).resolve().parents[3] / "csrc" / "torch" / "stable.cpp"


def test_the_binding_registers_the_tables_native_operators():
    text = STABLE.read_text(encoding="utf-8")
    assert f"STABLE_TORCH_LIBRARY_IMPL({NAMESPACE}, CUDA, m)" in text
    registered = re.findall(r'm\.impl\("(\w+)", TORCH_BOX\(&Native::(\w+)\)\)', text)
    assert all(name == function for name, function in registered)
    assert sorted(name for name, _ in registered) == sorted(op.name for op in OPS if op.native)
