"""The entry points by type of an extension module, on a modelled GPU.

FUSEDOPS_MODULE is the module's file. The tests of tests/smoke that say nothing of a real GPU run
here too: there they need a wheel and a GPU.
"""

import ctypes
import dataclasses
import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
import torch
from cases import CASES
from cases.case import outputs
from exact import by_case
from test_direct import test_what_only_the_dispatcher_can_take_is_left_to_it as left_by_direct
from test_gemm import test_what_writes_counts_its_writes_by_type_too  # noqa: F401 - a test
from test_kinds import test_entry_points_by_type  # noqa: F401 - a test
from test_typed import (  # noqa: F401 - tests
    test_a_result_shares_no_memory,
    test_a_tensor_without_strides_is_refused_by_name_on_a_cpu_too,
    test_a_wrong_call_is_refused_in_one_sentence,
    test_an_entry_point_gives_its_operators_bits,
    test_an_entry_point_is_pickled_by_its_name,
    test_arrays_of_another_framework,
    test_inference_mode,
    test_results_go_to_the_callers_tensors,
    test_results_that_are_arrays_of_another_framework,
    test_the_dispatcher_takes_what_it_alone_can_take,
    test_the_module_has_every_operator_for_every_type,
    test_what_an_entry_point_is_not_for_is_refused_in_words,
)

import fusedops
from fusedops.registry import families
from fusedops.typed import direct_call
from torchwheel_runtime import runtime

FILE = Path(os.environ["FUSEDOPS_MODULE"])
NAME = FILE.name.partition(".")[0]
CPU = torch.device("cpu")


def import_module():
    loader = ExtensionFileLoader(f"fusedops.{NAME}", str(FILE))
    made = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(made)
    return made


@pytest.fixture(scope="module", autouse=True)
def module():
    made = import_module()
    with pytest.MonkeyPatch.context() as patch:
        if NAME == "dlpack":
            patch.setattr(runtime, "entry_points", lambda package: made)
            x = torch.ones(4, 8)
            before = fusedops.vector_add_fp32(x, x)  # no kernels yet: the dispatcher takes it
            kernels = ctypes.CDLL(os.environ["FUSEDOPS_EMULATION"])._handle
            assert ctypes.PyDLL(str(FILE)).torchwheel_use_kernels(0, ctypes.c_void_p(kernels))
            assert torch.equal(fusedops.vector_add_fp32(x, x), before)
        else:
            status = dataclasses.replace(fusedops.status(), module=made)
            patch.setattr(fusedops, "_LOADED", status)
            patch.setattr(fusedops, "status", lambda: status)
        yield made


@pytest.fixture
def gpu() -> torch.device:
    return CPU


@pytest.fixture
def anywhere() -> torch.device:
    return CPU


@by_case
def test_the_module_takes_the_call_itself(case, module, monkeypatch):
    """Else the entry point in Python would give the same bits, only later."""
    if NAME == "dlpack" and case.op in families()["gemm"]:
        pytest.skip("cuBLASLt has the products over DLPack, and the model has no cuBLASLt")
    args = case.inputs(case.tiny, torch.float32, CPU)
    monkeypatch.setattr(fusedops.typed, "_python_entry_point", lambda op, *_: _never(op))
    function = fusedops.typed.entry_point(f"{case.op}_fp32", module if NAME == "_C" else None)
    if isinstance(function, type(_never)):
        pytest.skip(f"the module has no {case.op}")
    assert outputs(function(*args, **case.keywords))


def _never(op):
    def never(*args, **keywords):
        raise AssertionError(f"{op.name}: the call was left to Python")

    return never


def test_direct_calls_leave_to_the_dispatcher_what_it_alone_can_take():
    if NAME != "dlpack":
        pytest.skip("the module over DLPack alone has direct calls")
    left_by_direct(CPU)


def test_a_written_argument_counts_its_writes_and_is_returned():
    if isinstance(fusedops.rms_mlp_gemm_fp32, type(_never)):
        pytest.skip("the module has no rms_mlp_gemm")
    case = next(case for case in CASES if case.op == "rms_mlp_gemm")
    args = case.inputs(case.tiny, torch.float32, CPU)
    before = args[1]._version
    results = fusedops.rms_mlp_gemm_fp32(*args, **case.keywords)
    assert results[-1] is args[1]
    assert args[1]._version > before
    with torch.inference_mode():
        unversioned = case.inputs(case.tiny, torch.float32, CPU)
    assert fusedops.rms_mlp_gemm_fp32(*unversioned, **case.keywords)[-1] is unversioned[1]


def test_a_product_is_left_to_torch_without_cublaslt():
    product = direct_call("vector_matmul") if NAME == "dlpack" else None
    if product is None:
        pytest.skip("the module has no direct call of vector_matmul")
    x = torch.ones(4, 8)
    assert product(x, x.t()) is NotImplemented


def test_a_direct_call_is_plain():
    if NAME != "dlpack":
        pytest.skip("the module over DLPack alone has direct calls")
    x = torch.ones(4, 8)
    assert torch.equal(direct_call("vector_add")(x, x), x + x)
    assert direct_call("vector_add")(x) is NotImplemented
