"""Every way of calling that is timed, on tiny tensors and the CPU."""

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from families import FAMILIES  # noqa: E402
from kernelbench.ahead import case_of, jobs_of  # noqa: E402
from kernelbench.case import Choice  # noqa: E402
from kernelbench.measure import difference  # noqa: E402
from kernelbench.peers import CACHE_VARIABLES, PINS, keep_caches, pinned  # noqa: E402

import fusedops  # noqa: E402
from fusedops.registry import OPS  # noqa: E402

DOCS = Path(__file__).resolve().parents[3] / "docs" / "ops"

OPERATORS = [
    (family, place)
    for family, found in FAMILIES.items()
    for place, operator in enumerate(found.operators)
    if hasattr(fusedops, operator.name)
]
each = pytest.mark.parametrize(("family", "place"), OPERATORS)


@pytest.mark.parametrize("family", FAMILIES)
def test_there_is_a_page_for_the_figures(family):
    assert (DOCS / f"{family}.md").is_file()


def test_every_operator_with_a_function_is_timed():
    timed = {operator.name for family in FAMILIES.values() for operator in family.operators}
    left_out = {op.name for op in OPS if op.public} - timed
    # One of the forms for int8 weights stands for all: they share its kernel.
    assert all(name.endswith("_int8") for name in left_out)
    assert "vector_matmul_int8" in timed


@each
def test_ours_computes_what_plain_torch_computes(family, place):
    operator = FAMILIES[family].operators[place]
    for dtype in operator.dtypes:
        case = operator.make(operator.tiny, dtype)
        arguments = case.inputs(torch.device("cpu"))
        assert difference(case, arguments) <= case.tolerance


@each
def test_cells_are_told_apart_and_found_again(family, place):
    operator = FAMILIES[family].operators[place]
    cases = list(operator.cases(Choice()))
    keys = {(case.op, case.way, case.dtype_name, case.shape_name) for case in cases}
    assert len(keys) == len(cases)
    assert {case.op for case in cases} == {operator.name}
    assert set(operator.quick) <= set(operator.shapes)
    for case in cases:
        for job in jobs_of(family, [(place, case)])[0]:
            found = case_of(job)
            assert (found.dtype, found.shape) == (case.dtype, case.shape)


@each
def test_bytes_are_at_least_those_of_what_comes_out(family, place):
    operator = FAMILIES[family].operators[place]
    case = operator.smallest
    result = case.plain(*case.inputs(torch.device("cpu")))
    results = (result,) if isinstance(result, torch.Tensor) else result
    assert case.bytes_moved > sum(tensor.nbytes for tensor in results)


def test_operators_of_a_family_are_told_apart():
    for family in FAMILIES.values():
        ways = [
            (operator.name, operator.make(operator.shapes[0], operator.dtypes[0]).way)
            for operator in family.operators
            if hasattr(fusedops, operator.name)
        ]
        assert len(set(ways)) == len(ways)


def test_every_peer_is_pinned():
    pins = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    assert {"liger-kernel", "flashinfer-python", "quack-kernels"} <= set(pinned())
    assert all(line.count("==") == 1 for line in pins)


def test_what_peers_compile_is_kept_for_one_gpu_and_torch(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    places = set()
    for gpu, version in (("H100 80GB", "2.11.0"), ("H200", "2.11.0"), ("H200", "2.13.0")):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu=gpu: gpu)
        monkeypatch.setattr(torch, "__version__", version)
        keep_caches(tmp_path)
        places |= {os.environ[variable] for variable in CACHE_VARIABLES}
    assert len(places) == 3 * len(CACHE_VARIABLES)
    assert all(Path(place).is_dir() and tmp_path in Path(place).parents for place in places)
