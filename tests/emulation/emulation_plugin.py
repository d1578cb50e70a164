"""A pytest plugin: the tests' operators run on the modelled GPU of FUSEDOPS_EMULATION."""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from fusedops import checks, workspace
from fusedops.registry import families

torch.ops.load_library(os.environ["FUSEDOPS_EMULATION"])
_MODEL = ctypes.CDLL(os.environ["FUSEDOPS_EMULATION"])
_MODEL.fusedops_model_name.restype = ctypes.c_char_p

_fail = checks.fail


def fail(op: str, argument: str, expected: str, found: object) -> NoReturn:
    """Words are for what the operator has refused: another error of a wrong call is a fault."""
    error = sys.exc_info()[1]
    if isinstance(error, RuntimeError) and "are not as fusedops." not in str(error):
        raise error
    _fail(op, argument, expected, found)


checks.fail = fail
# A workspace on the CPU has no memory for the blocks of a step that share a sequence.
workspace._processors = lambda _device: 132

COUNTS = pytest.StashKey[list[int]]()
KERNELS = pytest.StashKey[set[int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--family", action="append", help="only the tests of this family")
    parser.addoption("--counts", type=Path, help="write the counts of tests and launches as JSON")


def families_of(item: pytest.Item) -> set[str]:
    """The families that a test is about: of its case, else of its file."""
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    if item.path.stem.startswith("emulated_") and case is None:
        return set(families())
    if case is None:
        return {item.path.stem.removeprefix("test_")}
    op = case.op
    return {family for family, ops in families().items() if op in ops} or {item.path.stem}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("--family") or ())
    if wanted:
        items[:] = [item for item in items if families_of(item) & wanted]


def failure_of(report: Any) -> dict[str, str]:
    """A failed test, what it says, and the line that raised."""
    crash = getattr(report.longrepr, "reprcrash", None)
    # A process that crashed, or a file that cannot be collected, has a text that ends with why.
    says = crash.message if crash else str(report.longrepr).strip().rpartition("\n")[2]
    place = f"{crash.path}:{crash.lineno}" if crash else ""
    return {"test": report.nodeid, "says": says, "place": place}


def own_counts() -> list[int]:
    """Launches, blocks and switches of threads of this process."""
    counts = (ctypes.c_uint64 * 3)()
    _MODEL.fusedops_model_counts(counts)
    return list(counts)


def own_kernels() -> list[int]:
    """The kernels that this process launched, by their offsets in the library."""
    offsets = (ctypes.c_uint64 * 4096)()
    return offsets[: _MODEL.fusedops_model_kernels(offsets, ctypes.c_size_t(len(offsets)))]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """A worker's counts, in the process that started it."""
    total = node.config.stash.setdefault(COUNTS, [0, 0, 0])
    for at, count in enumerate(node.workeroutput.get("model", ())):
        total[at] += count
    node.config.stash.setdefault(KERNELS, set()).update(node.workeroutput.get("kernels", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["model"] = own_counts()
        session.config.workeroutput["kernels"] = own_kernels()


def pytest_terminal_summary(terminalreporter) -> None:
    found = terminalreporter.config.stash.get(COUNTS, None) or own_counts()
    launches, blocks, switches = found
    name = _MODEL.fusedops_model_name().decode()
    if file := terminalreporter.config.getoption("--counts"):
        outcomes = ("passed", "skipped", "failed", "error")
        stats = terminalreporter.stats
        counts: dict[str, Any] = {one: len(stats.get(one, ())) for one in outcomes}
        counts |= {"launches": launches, "blocks": blocks, "switches": switches}
        counts["kernels"] = sorted(
            terminalreporter.config.stash.get(KERNELS, None) or own_kernels()
        )
        failed = (*stats.get("failed", ()), *stats.get("error", ()))
        counts["failures"] = [failure_of(report) for report in failed]
        file.write_text(json.dumps(counts), encoding="utf-8")
    terminalreporter.write_line(
        f"{name}: {launches} launches, {blocks} blocks, {switches} switches of threads"
    )
