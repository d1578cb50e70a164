"""A pytest plugin: the tests' operators run on the modelled GPU of FUSEDOPS_EMULATION."""

import ctypes
import os

import pytest
import torch

import fusedops  # noqa: F401 - defines the operators

torch.ops.load_library(os.environ["FUSEDOPS_EMULATION"])
_MODEL = ctypes.CDLL(os.environ["FUSEDOPS_EMULATION"])
_MODEL.fusedops_model_name.restype = ctypes.c_char_p


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--family", action="append", help="only the tests of this family")


def families_of(item: pytest.Item) -> set[str]:
    """The families that a test is about: of its case, else of its file."""
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    if case is None:
        return {item.path.stem.removeprefix("test_")}
    op = case.op
    from fusedops.registry import families

    return {family for family, ops in families().items() if op in ops} or {item.path.stem}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("--family") or ())
    if wanted:
        items[:] = [item for item in items if families_of(item) & wanted]


def pytest_terminal_summary(terminalreporter) -> None:
    counts = (ctypes.c_uint64 * 3)()
    _MODEL.fusedops_model_counts(counts)
    launches, blocks, switches = counts
    name = _MODEL.fusedops_model_name().decode()
    terminalreporter.write_line(
        f"{name}: {launches} launches, {blocks} blocks, {switches} switches of threads"
    )
