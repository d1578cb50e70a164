"""The load order, and the ways each step can fail."""

import contextlib
import itertools
import re
import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.library import Library  # noqa: E402

from torchwheel_runtime import runtime  # noqa: E402
from torchwheel_runtime.builder import Extension, Module, Operator  # noqa: E402
from torchwheel_runtime.runtime import operator_library, prebuilt  # noqa: E402

NUMBERS = itertools.count()


@pytest.fixture
def extension(monkeypatch):
    """A package with two operators that have no sources; kernels are for the CPU."""
    name = f"loaded_{next(NUMBERS)}"
    library = Library(name, "DEF")
    for op in ("double", "negate"):
        library.define(f"{op}(Tensor x) -> Tensor")
        library.impl(op, lambda x: x * 0, "CompositeExplicitAutograd")
    monkeypatch.setattr(prebuilt, "load_problem", lambda _, **__: None)
    monkeypatch.delenv("TORCHWHEEL_MODE", raising=False)
    yield Extension(
        name,
        "csrc",
        (Operator("two", ()), Operator("minus", ())),
        module=Module(f"{name}._C"),
        dispatch="CPU",
    )
    library._destroy()


OPS = {"two": ("double",), "minus": ("negate",)}


def load(extension, folder):
    return runtime.load(extension, folder, OPS)


def ways(status):
    return [(one.operator, one.way) for one in status.operators]


def registers(extension, ops=("double", "negate"), times=2):
    """Stands for load_library, as one that brings kernels."""
    kept = []

    def load_library(_):
        library = Library(extension.namespace, "IMPL")
        for op in ops:
            library.impl(op, lambda x: x * times, extension.dispatch)
        kept.append(library)

    return load_library


@pytest.fixture
def gpu_torch(monkeypatch):
    """A torch that is built for GPUs."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")


@pytest.fixture
def library(tmp_path):
    """A prebuilt library of the installation."""
    (tmp_path / "_lib").mkdir()
    path = tmp_path / "_lib" / "cu130-stable.so"
    path.touch()
    return path


@contextlib.contextmanager
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def double(extension):
    """Call an operator: 2 by a kernel, 0 by plain PyTorch."""
    return getattr(torch.ops, extension.namespace).double(torch.ones(1)).item()


FALLBACK = [("two", "fallback"), ("minus", "fallback")]
WAITING = [("two", "waiting"), ("minus", "waiting")]
PREBUILT = [("two", "prebuilt"), ("minus", "prebuilt")]


def test_a_torch_without_gpus_and_nothing_prebuilt_is_no_warning(extension, tmp_path):
    with no_warning():
        status = load(extension, tmp_path)
    assert ways(status) == FALLBACK
    assert status.reason == "prebuilt: none in this installation"
    assert not status.native


def test_a_library_that_does_not_load_is_one_warning_that_names_it(extension, tmp_path, library):
    library.write_bytes(b"no library")
    expected = rf"{extension.package}: two, minus on plain PyTorch: prebuilt: cu130-stable.so: "
    with pytest.warns(RuntimeWarning, match=expected) as seen:
        status = load(extension, tmp_path)
    assert len(seen) == 1
    assert f"`python -m {extension.package}` says what fixes it" in str(seen[0].message)
    assert ways(status) == FALLBACK


def fails(*_, **__):
    raise RuntimeError("no C++ compiler (g++, c++ or clang++) on the PATH\nmore")


@pytest.mark.parametrize(
    ("load_problem", "says"),
    [
        (lambda _, **__: "torch >=2.11 expected", "torch >=2.11 expected"),
        (fails, r"no C\+\+ compiler"),  # a check that fails is no crash
    ],
)
def test_what_does_not_fit_is_not_loaded(
    extension, tmp_path, monkeypatch, library, load_problem, says
):
    monkeypatch.setattr(prebuilt, "load_problem", load_problem)
    monkeypatch.setattr(prebuilt, "load_library", lambda _: pytest.fail("it was loaded"))
    with pytest.warns(RuntimeWarning, match=f"prebuilt: {says}"):
        load(extension, tmp_path)


def test_the_next_library_is_tried(extension, tmp_path, monkeypatch):
    (tmp_path / "_lib").mkdir()
    for name in ("a.so", "b.so"):
        (tmp_path / "_lib" / name).touch()

    good = registers(extension)

    def load_library(library):
        if library.path.name == "a.so":
            raise OSError("undefined symbol: aoti_torch_empty\nmore")
        good(library)

    monkeypatch.setattr(prebuilt, "load_library", load_library)
    status = load(extension, tmp_path)
    assert status.library == tmp_path / "_lib" / "b.so"
    assert status.native
    assert ways(status) == PREBUILT
    assert "a.so: undefined symbol: aoti_torch_empty" in status.operators[0].refusals[0].reason
    assert runtime.status_of(extension.package) == status


def test_the_extension_module_is_tried_after_the_stable_libraries(extension, tmp_path, monkeypatch):
    library = tmp_path / f"_C{EXTENSION_SUFFIXES[0]}"
    library.touch()
    (tmp_path / "_C.cpython-999-x86_64-linux-gnu.so").touch()  # another Python's
    module = ModuleType(f"{extension.package}._C")
    kernels = registers(extension)
    kernels(library)
    monkeypatch.setitem(sys.modules, extension.package, ModuleType(extension.package))
    monkeypatch.setitem(sys.modules, f"{extension.package}._C", module)
    status = load(extension, tmp_path)
    assert (status.library, status.module) == (library, module)
    monkeypatch.setattr(prebuilt, "load_library", lambda _: None)  # its kernels are there already
    (tmp_path / "_lib").mkdir()
    (tmp_path / "_lib" / "cu130-stable.so").touch()
    status = load(extension, tmp_path)
    assert status.library == tmp_path / "_lib" / "cu130-stable.so"
    assert status.module is None


@pytest.mark.parametrize("step", ["jit build", "jit cache"])
def test_operators_wait_for_their_first_call_and_are_built_one_by_one(
    extension, tmp_path, monkeypatch, gpu_torch, step
):
    asked, kept = [], []

    def obtain(_extension, _package, name):
        asked.append(name)
        return SimpleNamespace(path=tmp_path / f"{name}.so", prepare=lambda: None), step

    def load_library(file):
        library = Library(extension.namespace, "IMPL")
        op = {"two.so": "double", "minus.so": "negate"}[file.path.name]
        library.impl(op, lambda x: x * 2, "CPU")
        kept.append(library)

    monkeypatch.setattr(operator_library, "obtain_library", obtain)
    monkeypatch.setattr(prebuilt, "load_library", load_library)
    with no_warning():
        status = load(extension, tmp_path)
        assert ways(status) == WAITING
        assert double(extension) == 2
    status = runtime.status_of(extension.package)
    assert ways(status) == [("two", step), ("minus", "waiting")]
    assert status.operators[0].library == tmp_path / "two.so"
    assert asked == ["two"]


def test_what_cannot_be_built_is_one_warning_at_its_first_call(
    extension, tmp_path, monkeypatch, gpu_torch
):
    monkeypatch.setattr(operator_library, "obtain_library", fails)
    load(extension, tmp_path)
    expected = "two on plain PyTorch: prebuilt: none in this installation; jit build: no C"
    with pytest.warns(RuntimeWarning, match=expected):
        assert double(extension) == 0
    with no_warning():
        assert double(extension) == 0
    assert ways(runtime.status_of(extension.package))[0] == ("two", "fallback")


def test_mode_error_raises_where_plain_pytorch_would_run(extension, tmp_path, monkeypatch, request):
    monkeypatch.setenv("TORCHWHEEL_MODE", "error")
    with no_warning():
        load(extension, tmp_path)  # this torch knows no GPU, so nothing is missing
    request.getfixturevalue("gpu_torch")
    monkeypatch.setattr(operator_library, "obtain_library", fails)
    load(extension, tmp_path)
    with pytest.raises(RuntimeError, match=r"two on plain PyTorch.*no C\+\+ compiler"):
        double(extension)


@pytest.mark.parametrize(
    ("mode", "expected", "warning"),
    [
        ("prebuilt", FALLBACK, "prebuilt: none in this installation"),
        ("jit", WAITING, None),
        ("fallback", FALLBACK, None),
    ],
)
def test_modes(extension, tmp_path, monkeypatch, gpu_torch, request, mode, expected, warning):
    """What is prebuilt is passed over, or there is none; plain PyTorch by choice is silent."""
    if mode != "prebuilt":
        request.getfixturevalue("library")
    monkeypatch.setattr(prebuilt, "load_library", lambda _: pytest.fail("it was loaded"))
    monkeypatch.setenv("TORCHWHEEL_MODE", mode)
    with pytest.warns(RuntimeWarning, match=warning) if warning else no_warning():
        status = load(extension, tmp_path)
    assert ways(status) == expected
    assert (status.reason == "plain PyTorch") == (mode == "fallback")


def test_mode_jit_without_gpu_support_says_so(extension, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_MODE", "jit")
    with pytest.warns(RuntimeWarning, match="TORCHWHEEL_MODE=jit, and this torch has no GPU"):
        load(extension, tmp_path)


def test_an_operator_that_the_library_lacks_is_built(
    extension, tmp_path, monkeypatch, gpu_torch, library
):
    monkeypatch.setattr(prebuilt, "load_library", registers(extension, ["double"]))
    load(extension, tmp_path)
    assert double(extension) == 2
    status = runtime.status_of(extension.package)
    assert ways(status) == [("two", "prebuilt"), ("minus", "waiting")]
    assert status.operators[1].reason == "prebuilt: cu130-stable.so has no kernel of it"


def test_with_a_torch_for_gpus_the_library_is_loaded_at_the_first_call(
    extension, tmp_path, monkeypatch, gpu_torch, library
):
    loaded = []
    brings = registers(extension)

    def load_library(opened):
        loaded.append(opened.path)
        brings(opened)

    monkeypatch.setattr(prebuilt, "load_library", load_library)
    status = load(extension, tmp_path)
    assert (ways(status), loaded) == (PREBUILT, [])
    ops = getattr(torch.ops, extension.namespace)
    assert [ops.double(torch.ones(1)).item(), ops.negate(torch.ones(1)).item()] == [2, 2]
    assert loaded == [library]


def test_without_a_call_it_can_be_loaded_too(extension, tmp_path, monkeypatch, gpu_torch, library):
    monkeypatch.setattr(prebuilt, "load_library", lambda _: (_ for _ in ()).throw(OSError("bad")))
    monkeypatch.setattr(operator_library, "obtain_library", lambda *_: pytest.fail("it was built"))
    load(extension, tmp_path)
    runtime.load_now(extension.package)
    status = runtime.status_of(extension.package)
    assert ways(status) == WAITING
    assert status.reason == "prebuilt: cu130-stable.so: bad"


@pytest.mark.parametrize("builds", [True, False])
def test_a_gpu_without_code_is_one_warning_and_another_way(
    extension, tmp_path, monkeypatch, gpu_torch, library, builds
):
    problem = "archs: code for GPU 0 (A10, 8.6) expected, found 9.0"
    monkeypatch.setattr(
        prebuilt, "load_problem", lambda _, ask_driver: problem if ask_driver else None
    )
    built = (SimpleNamespace(path=tmp_path / "two.so", prepare=lambda: None), "jit build")
    monkeypatch.setattr(operator_library, "obtain_library", (lambda *_: built) if builds else fails)
    monkeypatch.setattr(prebuilt, "load_library", registers(extension, ["double"]))
    load(extension, tmp_path)
    with pytest.warns(RuntimeWarning, match=re.escape(f"prebuilt: {problem}")) as seen:
        results = [double(extension) for _ in range(2)]
    assert results == [2 if builds else 0] * 2
    assert len(seen) == 1
    way = ways(runtime.status_of(extension.package))[0]
    assert way == ("two", "jit build" if builds else "fallback")


@pytest.mark.parametrize(("backend", "arch"), [("cuda", "9.0"), ("rocm", "gfx90a")])
def test_the_gpus_that_torch_has_started(monkeypatch, backend, arch):
    facts = SimpleNamespace(name="A", major=9, minor=0, gcnArchName="gfx90a:sramecc+:xnack-")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    assert prebuilt.gpus_of_torch(backend) == ()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    (gpu,) = prebuilt.gpus_of_torch(backend)
    assert (gpu.index, gpu.name, str(gpu.arch)) == (0, "A", arch)


@pytest.mark.parametrize(
    ("flags", "archs"),
    [
        ("sm_75 sm_90a compute_120", "7.5 9.0a 12.0+PTX"),
        ("gfx90a gfx1100", "gfx90a gfx1100"),
        ("", ""),
        (None, ""),
        ("sm_75 xpu_1", ""),
    ],
)
def test_the_archs_of_torchs_own_kernels(monkeypatch, flags, archs):
    monkeypatch.setattr(torch._C, "_cuda_getArchFlags", lambda: flags, raising=False)
    assert " ".join(map(str, prebuilt.archs_of_torch())) == archs
