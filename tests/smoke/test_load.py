"""The package imports, and its native library, where it has one, is loaded and registered."""

import os
from pathlib import Path

import pytest
import torch

import fusedops
from fusedops.registry import NAMESPACE, OPS
from torchwheel_runtime import runtime


def expects_native() -> bool:
    """What the runner says the wheel has, else what lies in the installed package."""
    expected = os.environ.get("TORCHWHEEL_EXPECT_NATIVE")
    if expected is not None:
        return expected == "1"
    return any(Path(fusedops.__file__).parent.rglob("*.so"))


def has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::{name}", key)


def test_native_library_is_loaded_where_the_wheel_has_one():
    status = fusedops.status()
    assert (status.library is not None) == expects_native(), status.reason


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_operator_is_registered(op):
    assert has_kernel(op.name, "CompositeExplicitAutograd")
    assert has_kernel(op.name, "Meta")
    ways = {name: one.way for one in fusedops.status().operators for name in one.ops}
    # One that waits for its first call, or for that on another GPU, has a kernel above the GPU's.
    waits = has_kernel(op.name, "BackendSelect")
    may_run = ways[f"{NAMESPACE}::{op.name}"] != "fallback"
    assert (has_kernel(op.name, "CUDA") or waits) == (may_run or waits)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_schema_is_the_tables(op):
    actual = getattr(torch.ops.fusedops, op.name).default._schema
    assert actual == torch._C.parse_schema(f"{NAMESPACE}::{op.schema}")


def test_native_library_checks_its_arguments_without_a_gpu():
    if not expects_native():
        pytest.skip("this wheel has no native library")
    runtime.load_now("fusedops")  # else a first call would load it and call anew, for a CPU
    kernels = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    call = torch.ops.fusedops.bias_gelu.default.redispatch
    says = r"^bias_gelu: the arguments are not as fusedops\.bias_gelu takes them"
    with pytest.raises(RuntimeError, match=says):
        call(kernels, torch.ones(2, 4), torch.ones(3))
    with pytest.raises(RuntimeError, match="bias_gelu: x: expected a tensor on a GPU, found cpu"):
        call(kernels, torch.ones(2, 4), torch.ones(4))
