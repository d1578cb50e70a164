"""Parts of a universal wheel are chosen, verified and loaded at the first call on a GPU."""

import ctypes
import os
import types
from pathlib import Path

import pytest
import torch
from torch.library import Library

import partsmaker
from partsmaker import FRONT_END, H100, K80, NUMBERS, compiled, kernels, mapped
from torchwheel_runtime import runtime
from torchwheel_runtime.arch.devices import Driver, Gpu, VisibleGpus
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.runtime import front_end, universal

pytestmark = pytest.mark.integration
FITTING = ["stable", "cu124", "cu130"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    library = Library(f"parted_{next(NUMBERS)}", "DEF")
    yield partsmaker.install(tmp_path, monkeypatch, library)
    library._destroy()


@pytest.fixture
def entry_points(tmp_path, monkeypatch):
    """Installs a module of entry points with that interface; returns it, loaded."""

    def install(interface):
        file = compiled(tmp_path / "dlpack.so", FRONT_END)
        made = front_end.EntryPoints(types.ModuleType("dlpack"), ctypes.CDLL(str(file)), interface)
        monkeypatch.setattr(front_end, "import_entry_points", lambda *_: made)
        return made

    return install


@pytest.mark.filterwarnings("error")
def test_the_best_library_is_loaded_at_the_first_call_and_no_other(installed, monkeypatch):
    asked = []
    monkeypatch.setattr(universal, "find_driver", lambda _: asked.append(1))
    monkeypatch.setattr(universal, "visible_gpus", lambda _: asked.append(2))
    installed.load()
    assert not asked
    assert not any(map(mapped, map(installed.file, FITTING)))
    monkeypatch.setattr(universal, "find_driver", lambda _: Driver("cuda", "580.1", "13.0"))
    monkeypatch.setattr(universal, "visible_gpus", lambda _: VisibleGpus((H100,)))
    assert installed.call() == 130
    assert [mapped(installed.file(name)) for name in FITTING] == [True, False, True]
    assert installed.status().library == installed.file("cu130")
    assert installed.status().choices == (
        "front end: stable",
        "GPU -1 (H100, 9.0): cu130; cu124: cu130 fits better",
    )
    assert not installed.builds


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("interface", "answer"), [("one", 130), ("two", -1)])
def test_entry_points_get_the_kernels_of_the_front_end(
    installed, entry_points, before, interface, answer
):
    made = entry_points(interface)
    installed.load()
    name = installed.extension.package
    if before:
        assert runtime.entry_points(name) is made.module
        assert made.library.answer(-1) == -1
    assert installed.call() == 130
    assert runtime.entry_points(name) is made.module
    assert made.library.answer(-1) == answer


def test_entry_points_get_kernels_that_are_built_later(installed, entry_points):
    installed.gpus[:] = [K80]
    installed.build_answer = 37
    made = entry_points("one")
    installed.load()
    assert runtime.entry_points(installed.extension.package)
    with pytest.warns(RuntimeWarning, match="built here"):
        assert installed.call() == 37
    assert made.library.answer(-1) == 37


def test_entry_points_that_do_not_load_are_one_warning(installed, monkeypatch):
    def refuse(*_):
        raise ImportError("dlpack.abi3.so: undefined symbol: PyNew")

    monkeypatch.setattr(front_end, "import_entry_points", refuse)
    installed.load()
    name = installed.extension.package
    with pytest.warns(RuntimeWarning, match=r"entry points by type in Python: .* PyNew$") as one:
        found = [runtime.entry_points(name) for _ in range(2)]
    assert (found, len(one)) == ([None, None], 1)
    assert installed.call() == 130


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["fallback", "jit"])
def test_there_are_no_entry_points_without_prebuilt_libraries(installed, monkeypatch, mode):
    monkeypatch.setenv("TORCHWHEEL_MODE", mode)
    monkeypatch.setattr(front_end, "import_entry_points", lambda *_: pytest.fail("imported"))
    installed.load()
    assert runtime.entry_points(installed.extension.package) is None


def test_a_process_can_fork_after_the_import(installed):
    installed.load()
    child = os.fork()
    if child == 0:
        os._exit(installed.call() != 130)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not mapped(installed.file("cu130"))
    assert installed.call() == 130


def test_a_library_is_forced(installed, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_LIBRARY", "cu124")
    installed.load()
    assert installed.call() == 124
    *_, line = installed.status().choices
    assert line == "GPU -1 (H100, 9.0): cu124; cu130: TORCHWHEEL_LIBRARY=cu124"


def test_an_unknown_name_is_a_warning(installed, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_LIBRARY", "cu125")
    installed.load()
    expected = "TORCHWHEEL_LIBRARY: expected one of cu124, cu130, found cu125; the best library"
    with pytest.warns(RuntimeWarning, match=expected) as one:
        assert installed.call() == 130
    assert len(one) == 1


def test_a_rule_that_is_ignored_is_printed_and_refuses_no_library(installed, monkeypatch, capsys):
    monkeypatch.setattr(universal, "find_driver", lambda _: Driver("cuda", "450.1", "11.0"))
    monkeypatch.setenv("TORCHWHEEL_IGNORE", "driver")
    installed.load()
    assert installed.call() == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("torchwheel: warning: TORCHWHEEL_IGNORE lets pass: driver: expected NV")


def test_each_kind_of_gpu_runs_what_fits_it(installed):
    installed.gpus.append(Gpu(0, "A100", parse("8.0")))
    installed.load()
    assert installed.call() == 130
    assert installed.answers(-1, 0) == [130, 124]
    assert installed.status().choices[1:] == (
        "GPU -1 (H100, 9.0): cu130; cu124: cu130 fits better",
        "GPU 0 (A100, 8.0): cu124; cu130: expected code for GPU 0 (A100, 8.0), found 9.0 10.0",
    )


@pytest.mark.parametrize("damage", ["cut", "replaced", "removed"])
def test_a_damaged_library_is_refused_and_the_next_is_taken(installed, damage):
    path = installed.file("cu130")
    if damage == "removed":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"x")
    installed.load()
    assert installed.call() == 124
    assert not mapped(path)
    *_, line = installed.status().choices
    start = "GPU -1 (H100, 9.0): cu124; cu130: "
    assert line.startswith(f"{start}{installed.claimed['cu130'].file}: ")
    assert "fits better" not in line


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("interface", ["two", ""])
def test_a_library_for_another_front_end_is_refused_and_the_next_is_taken(installed, interface):
    """It is of another version, and the claims agree with it."""
    kernels(installed.file("cu130"), 130, interface)
    installed.claim_again("cu130")
    installed.load()
    assert installed.call() == 124
    assert not mapped(installed.file("cu130"))
    *_, line = installed.status().choices
    found = interface or "none"
    assert f"cu130.so: expected the front end's interface, one, found {found}; " in line


def test_a_library_that_the_loader_refuses_is_named_and_the_next_is_taken(installed):
    path = installed.file("cu130")
    compiled(
        path,
        f"{partsmaker.KERNELS}\nint absent(void); int use(void) {{ return absent(); }}",
        ANSWER=130,
        INTERFACE='"one"',
    )
    installed.claim_again("cu130")
    installed.load()
    assert installed.call() == 124
    *_, line = installed.status().choices
    assert "cu130: cu130.so: cannot be opened: " in line
    assert "undefined symbol: absent" in line


def test_a_damaged_front_end_leaves_the_way_to_build_and_plain_pytorch(installed):
    installed.file("stable").write_bytes(b"no library")
    installed.load()
    expected = r"front_end/stable.so: expected the file that was installed .*; reinstall"
    with pytest.warns(RuntimeWarning, match=expected) as one:
        assert [installed.call() for _ in range(2)] == [1000, 1000]
    assert len(one) == 1
    assert installed.builds == [("plus", None)]


@pytest.mark.parametrize("lacks", ["torchwheel_use_kernels", "torchwheel_interface"])
def test_a_front_end_that_takes_no_kernels_is_not_loaded(installed, lacks):
    """torch would keep its operators, which would find no kernels."""
    compiled(installed.file("stable"), FRONT_END.replace(lacks, "something"))
    installed.claim_again("stable")
    installed.load()
    with pytest.warns(RuntimeWarning, match=r"front_end/stable.so: expected an? .*, found none; "):
        assert installed.call() == 1000
    assert not installed.registered
    assert not mapped(installed.file("stable"))


def test_what_a_new_torch_lacks_is_named(installed, monkeypatch):
    names = [f"aoti_torch_of_{year}" for year in (2031, 2032, 2033, 2034, 2035)]
    calls = "".join(
        f"int {name}(void); int use_{name}(void) {{ return {name}(); }}\n" for name in names
    )
    compiled(installed.file("stable"), FRONT_END + calls)
    installed.claim_again("stable")
    new = Torch("3.0.0+cu130", "13.0", None, Path(torch.__file__).parent)
    monkeypatch.setattr(universal, "find_torch", lambda: new)
    installed.load()
    expected = (
        "prebuilt: front end stable: expected aoti_torch_of_2031, aoti_torch_of_2032, "
        r"aoti_torch_of_2033 and 2 more in torch, found torch 3.0.0\+cu130 without; install "
    )
    with pytest.warns(RuntimeWarning, match=expected) as one:
        assert [installed.call() for _ in range(2)] == [1000, 1000]
    assert len(one) == 1
    assert not installed.registered


def test_a_torch_that_is_too_old_is_named(installed, monkeypatch):
    old = Torch("2.5.1+cu124", "12.4", None, Path(torch.__file__).parent)
    monkeypatch.setattr(universal, "find_torch", lambda: old)
    installed.load()
    expected = r"front end: expected torch 2.6 or later, found torch 2.5.1\+cu124; `pip install"
    with pytest.warns(RuntimeWarning, match=expected):
        assert installed.call() == 1000
    assert installed.builds == [("plus", None)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["auto", "error"])
def test_a_torch_for_cpus_gets_the_front_end_alone(installed, monkeypatch, mode):
    monkeypatch.setattr(torch.version, "cuda", None)
    cpu = Torch("2.13.0+cpu", None, None, Path(torch.__file__).parent)
    monkeypatch.setattr(universal, "find_torch", lambda: cpu)
    monkeypatch.setenv("TORCHWHEEL_MODE", mode)
    status = installed.load()
    assert status.library == installed.file("stable")
    assert installed.status() == status
    assert [mapped(installed.file(name)) for name in FITTING] == [True, False, False]


def test_gpus_are_those_that_torch_has_started(installed, monkeypatch):
    """A container may lack NVIDIA's management library, which then knows of no GPU."""
    monkeypatch.setattr(
        universal, "visible_gpus", lambda _: VisibleGpus((), "no libnvidia-ml.so.1")
    )
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Properties)
    installed.load()
    runtime.load_now(installed.extension.package)
    assert installed.answers(0, 1) == [130, 124]
    assert installed.status().choices[1].startswith("GPU 0 (GPU number 0, 9.0): cu130; ")


class Properties:
    """Of a GPU, as torch has them: 9.0, then 8.0."""

    def __init__(self, index: int) -> None:
        self.name, self.major, self.minor = f"GPU number {index}", 9 - index, 0


@pytest.mark.filterwarnings("error")
def test_a_gpu_without_code_does_not_hinder_the_others(installed):
    installed.gpus.append(Gpu(0, "K80", K80.arch))
    installed.load()
    assert [installed.call() for _ in range(2)] == [130, 130]
    assert not installed.builds
