"""GPUs that a universal wheel has no code for: kernels are built at the first call there."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import Library

import partsmaker
from partsmaker import H100, K80, NUMBERS
from torchwheel_runtime import runtime
from torchwheel_runtime.arch.devices import Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.builder import ArchFilter, Operator
from torchwheel_runtime.runtime import front_end, operator_library, universal

pytestmark = pytest.mark.integration
OTHER_H100 = dataclasses.replace(H100, index=0)
OTHER_K80 = dataclasses.replace(K80, index=1)
NO_CODE = r"prebuilt: no kernel library serves GPU -1 \(K80, 3.7\): cu124: expected code for GPU -1"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """On a machine with a GPU that no library has code for, beside one that has."""
    library = Library(f"built_{next(NUMBERS)}", "DEF")
    made = partsmaker.install(tmp_path, monkeypatch, library)
    made.gpus[:] = [K80, OTHER_H100]
    yield made
    library._destroy()


def is_routed(installed) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(f"{installed.extension.namespace}::plus", "BackendSelect")


def test_kernels_are_built_at_its_first_call_after_one_warning(installed):
    installed.build_answer = 37
    installed.load()
    runtime.load_now(installed.extension.package)
    assert not installed.builds
    gpu = "GPU -1 (K80, 3.7)"
    assert installed.status().choices[1:] == (
        f"{gpu}: to be built at its first call on a GPU; cu124: expected code for {gpu}, "
        f"found 8.0 9.0+PTX; cu130: expected code for {gpu}, found 9.0 10.0",
        "GPU 0 (H100, 9.0): cu130; cu124: cu130 fits better",
    )
    with pytest.warns(RuntimeWarning, match=f"built here, because {NO_CODE}") as one:
        assert [installed.call() for _ in range(3)] == [37, 37, 37]
    assert len(one) == 1
    assert installed.builds == [("plus", K80)]
    assert installed.answers(-1, 0) == [37, 130]
    assert "GPU -1 (K80, 3.7): jit build; cu124: " in installed.status().choices[1]
    # Calls no longer pass through Python.
    assert not is_routed(installed)


@pytest.mark.parametrize("gpus", [[K80], [K80, OTHER_H100]])
def test_without_a_compiler_it_runs_plain_pytorch_after_one_warning(installed, gpus):
    installed.gpus[:] = gpus
    installed.load()
    expected = rf"plus on plain PyTorch: {NO_CODE}.*; jit build: no compiler here. `python -m"
    with pytest.warns(RuntimeWarning, match=expected) as one:
        assert [installed.call() for _ in range(3)] == [1000, 1000, 1000]
    assert len(one) == 1
    assert installed.builds == [("plus", K80)]
    assert installed.status().choices[1].startswith("GPU -1 (K80, 3.7): plain PyTorch; cu124: ")
    # Another GPU has kernels.
    served = OTHER_H100 in gpus
    assert installed.answers(0) == [130 if served else -1]
    (family,) = installed.status().operators
    ways = ("prebuilt", 0) if served else ("fallback", 2)
    assert (family.way, len(family.refusals)) == ways


def test_where_no_gpu_has_code_what_is_built_goes_the_same_way(installed):
    installed.gpus[:] = [K80, OTHER_K80]
    installed.build_answer = 37
    installed.load()
    with pytest.warns(RuntimeWarning, match=f"built here, because {NO_CODE}") as one:
        assert installed.call() == 37
    assert len(one) == 1
    assert installed.registered == [installed.file("stable")]
    (family,) = installed.status().operators
    assert (family.way, family.library.name) == ("jit build", "plus-1.so")
    # GPUs of one kind share what is built.
    assert installed.answers(-1, 1) == [37, 37]
    assert len(installed.builds) == 1
    assert not is_routed(installed)


def test_what_is_built_for_another_front_end_is_not_used(installed):
    installed.build_answer, installed.build_interface = 37, "two"
    installed.load()
    expected = "jit build: plus-1.so: expected the front end's interface, one, found two; "
    with pytest.warns(RuntimeWarning, match=expected):
        assert installed.call() == 1000
    assert installed.answers(-1) == [-1]


@pytest.mark.parametrize("gpus", [[K80], [K80, OTHER_H100]])
def test_mode_prebuilt_builds_nothing(installed, monkeypatch, gpus):
    monkeypatch.setenv("TORCHWHEEL_MODE", "prebuilt")
    installed.gpus[:] = gpus
    installed.load()
    with pytest.warns(RuntimeWarning, match=NO_CODE) as one:
        assert [installed.call() for _ in range(2)] == [1000, 1000]
    assert len(one) == 1
    assert not installed.builds
    assert installed.status().choices[1].startswith("GPU -1 (K80, 3.7): plain PyTorch; cu124: ")
    assert bool(installed.registered) == (OTHER_H100 in gpus)


@pytest.mark.parametrize("gpus", [[K80], [K80, OTHER_H100]])
def test_mode_error_raises_at_every_such_call_and_only_there(installed, monkeypatch, gpus):
    monkeypatch.setenv("TORCHWHEEL_MODE", "error")
    installed.gpus[:] = gpus
    installed.load()
    runtime.load_now(installed.extension.package)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"{NO_CODE}.*no compiler here"):
            installed.call()
    assert len(installed.builds) == 1


def test_mode_error_is_silent_where_kernels_can_be_built(installed, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_MODE", "error")
    installed.build_answer = 37
    installed.load()
    with pytest.warns(RuntimeWarning, match="built here"):
        assert installed.call() == 37


def test_a_family_without_code_for_a_gpu_is_built_though_the_library_serves_it(installed):
    """The library has other families' code for the GPU."""
    plus = Operator("plus", (), archs=ArchFilter(cuda=(10, 0)))
    installed.extension = dataclasses.replace(installed.extension, operators=(plus,))
    installed.gpus[:] = [H100]
    installed.load()
    expected = r"cu130 has no code of plus for GPU -1 \(H100, 9.0\); jit build: no compiler here"
    with pytest.warns(RuntimeWarning, match=expected):
        assert installed.call() == 1000
    assert installed.builds == [("plus", H100)]


def test_it_can_be_built_without_a_call(installed):
    installed.build_answer = 37
    installed.load()
    with pytest.warns(RuntimeWarning, match="built here"):
        runtime.build_now(installed.extension.package)
    assert installed.builds == [("plus", K80)]
    assert not is_routed(installed)
    assert installed.call() == 37


@pytest.mark.filterwarnings("ignore")
def test_threads_wait_for_the_one_that_builds(installed, monkeypatch):
    installed.build_answer = 37
    obtain = installed.obtain

    def slow(*arguments, **keywords):
        time.sleep(0.2)
        return obtain(*arguments, **keywords)

    monkeypatch.setattr(operator_library, "obtain_library", slow)
    installed.load()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: installed.call(), range(8))) == [37] * 8
    assert len(installed.builds) == 1


def test_a_call_that_starts_while_the_front_end_is_loaded_waits_for_it(installed, monkeypatch):
    """The front end has no kernels for its GPU yet."""
    installed.build_answer = 37
    load_library, found = front_end.load_library, []
    thread = threading.Thread(target=lambda: found.append(installed.call()))

    def load_then_wait(library):
        load_library(library)
        thread.start()
        thread.join(0.2)

    monkeypatch.setattr(front_end, "load_library", load_then_wait)
    installed.load()
    with pytest.warns(RuntimeWarning, match="built here"):
        assert installed.call() == 37
    thread.join()
    assert found == [37]
    assert not is_routed(installed)


TRACED = {
    "compile": lambda op: torch.compile(op, backend="aot_eager", fullgraph=True)(torch.zeros(2)),
    "vmap": lambda op: torch.vmap(op)(torch.zeros(2)),
    "functionalize": lambda op: torch.func.functionalize(op)(torch.zeros(2)),
    "inference": lambda op: torch.inference_mode()(op)(torch.zeros(2)),
}


@pytest.mark.parametrize("builds", [True, False])
@pytest.mark.parametrize("way", TRACED)
@pytest.mark.filterwarnings("ignore")
def test_torch_transforms_a_call_on_such_a_gpu(installed, way, builds):
    installed.build_answer = 37 if builds else None
    installed.load()
    for _ in range(2):
        found = TRACED[way](lambda x: installed.op(x) + 1)
        assert found.tolist() == [38 if builds else 1001] * 2
    assert len(installed.builds) == 1


def test_tensors_without_data_build_nothing(installed):
    installed.load()
    runtime.load_now(installed.extension.package)
    assert installed.op(torch.zeros(2, device="meta")).shape == (2,)
    with FakeTensorMode():
        assert installed.op(torch.zeros(2)).shape == (2,)
    assert not installed.builds


def test_a_gpu_that_torch_has_no_code_for_delays_no_other(installed, monkeypatch):
    """An old or integrated one, on which nobody computes."""
    installed.gpus[:] = [H100, Gpu(0, "K80", K80.arch)]
    monkeypatch.setattr(universal, "archs_of_torch", lambda: (parse("7.5"), parse("9.0+PTX")))
    installed.load()
    assert installed.call() == 130
    assert not is_routed(installed)
    assert installed.status().waiting_gpus == ()
    *_, line = installed.status().choices
    assert line.startswith("GPU 0 (K80, 3.7): torch has no code for it; cu124: expected code for ")


def test_kinds_of_gpus_are_decided_one_by_one(installed):
    installed.gpus[:] = [K80, Gpu(0, "P100", parse("6.0"))]
    installed.build_answer = 37
    installed.load()
    with pytest.warns(RuntimeWarning, match=NO_CODE) as one:
        assert installed.call() == 37
    assert len(one) == 1
    assert installed.answers(-1, 0) == [37, -1]
    assert is_routed(installed)
    assert (
        "GPU 0 (P100, 6.0): to be built at its first call on a GPU; "
        in (installed.status().choices[2])
    )
