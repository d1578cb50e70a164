"""Interceptors: kernels are built once, by whoever calls first, and then out of the way."""

import itertools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.library import Library  # noqa: E402

from torchwheel_runtime.runtime.first_call import FirstCall  # noqa: E402

NUMBERS = itertools.count()


@pytest.fixture
def ops():
    """Two operators with a reference: name of their namespace, and what keeps them."""
    name = f"first_call_{next(NUMBERS)}"
    library = Library(name, "DEF")
    for op in ("double", "negate"):
        library.define(f"{op}(Tensor x, *, float plus=0.0) -> Tensor")
        library.impl(op, lambda x, plus=0.0: x * 0, "CompositeExplicitAutograd")
    yield name
    library._destroy()


def kernels(name):
    """A library that gives `name` its kernels, as loading a native one does."""
    library = Library(name, "IMPL")
    library.impl("double", lambda x, *, plus=0.0: x * 2 + plus, "CPU")
    library.impl("negate", lambda x, *, plus=0.0: -x + plus, "CPU")
    return library


def test_the_first_call_is_made_on_what_it_had_built(ops):
    made = []
    FirstCall(ops, ("double", "negate"), "CPU", lambda: lambda: made.append(kernels(ops)))
    x = torch.tensor([1.0, 2.0])
    assert not made
    assert getattr(torch.ops, ops).double(x, plus=1.0).tolist() == [3.0, 5.0]
    assert getattr(torch.ops, ops).negate(x).tolist() == [-1.0, -2.0]
    assert getattr(torch.ops, ops).double(x).tolist() == [2.0, 4.0]
    assert len(made) == 1


def test_where_nothing_can_be_built_the_reference_answers(ops):
    asked = []

    def obtain():
        asked.append(1)
        return lambda: None

    FirstCall(ops, ("double", "negate"), "CPU", obtain)
    for _ in range(2):
        assert getattr(torch.ops, ops).double(torch.ones(2)).tolist() == [0.0, 0.0]
    assert asked == [1]


def test_threads_wait_for_the_one_that_builds(ops):
    made = []

    def obtain():
        time.sleep(0.2)
        return lambda: made.append(kernels(ops))

    FirstCall(ops, ("double", "negate"), "CPU", obtain)
    double = getattr(torch.ops, ops).double
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: double(torch.ones(1)).item(), range(8))) == [2.0] * 8
    assert len(made) == 1


def test_calls_of_another_backend_pass(ops):
    FirstCall(ops, ("double",), "CUDA", lambda: pytest.fail("nobody called it on a GPU"))
    assert getattr(torch.ops, ops).double(torch.ones(2)).tolist() == [0.0, 0.0]


def test_a_call_that_starts_while_the_library_is_loaded_waits_for_it(ops):
    made, found = [], []
    double = getattr(torch.ops, ops).double
    thread = threading.Thread(target=lambda: found.append(double(torch.ones(1)).item()))

    def load():
        thread.start()
        thread.join(0.2)
        assert not found
        # The thread that loads is not stopped.
        assert double(torch.ones(1)).item() == 0
        made.append(kernels(ops))

    FirstCall(ops, ("double", "negate"), "CPU", lambda: load)
    assert double(torch.ones(1)).item() == 2
    thread.join()
    assert found == [2]
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{ops}::double", "BackendSelect")


def test_an_error_reaches_the_caller_and_the_next_call_has_the_reference(ops):
    def load():
        raise RuntimeError("no compiler")

    FirstCall(ops, ("double",), "CPU", lambda: load)
    double = getattr(torch.ops, ops).double
    with pytest.raises(RuntimeError, match="no compiler"):
        double(torch.ones(1))
    assert double(torch.ones(1)).item() == 0
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{ops}::double", "BackendSelect")


def test_a_thread_in_an_interceptor_can_go_on_after_its_removal():
    program = Path(__file__).with_name("removed_interceptor.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr


# The first call on a GPU waits for each module that it imports.

SCRIPT = """
import sys
import torchwheel_runtime.runtime.universal
heavy = {"packaging", "rich", "filelock", "elftools", "pydantic", "ninja", "subprocess"}
heavy |= {"torchwheel", "torchwheel_runtime.toolkit"}
heavy |= {"torchwheel_runtime.machine.toolkits", "torchwheel_runtime.arch.lists"}
print(sorted(heavy & set(sys.modules)))
"""


def test_libraries_are_chosen_without_what_builds_need():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
