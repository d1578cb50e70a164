"""Parts of a universal wheel are chosen, verified and loaded at the first call on a GPU.

The libraries are small ones of gcc's. "GPU" -1 is where CPU tensors are, so that calls can be made.
"""

import ctypes
import dataclasses
import hashlib
import itertools
import subprocess
import warnings
from pathlib import Path

import pytest
import torch
from torch.library import Library

from torchwheel import runtime
from torchwheel.arch.devices import Gpu, VisibleGpus
from torchwheel.arch.model import parse
from torchwheel.builder import Extension, Operator
from torchwheel.claims import Claims, Part
from torchwheel.machine.facts import Driver, Torch
from torchwheel.runtime import build, loader, parts

pytestmark = pytest.mark.integration
NUMBERS = itertools.count()
FRONT_END = """
#include <dlfcn.h>
#include <stdbool.h>
const char torchwheel_interface[] = "one";
static void *libraries[8];
bool torchwheel_use_kernels(int gpu, void *library) {
  libraries[gpu + 1] = library;
  return true;
}
int answer(int gpu) {
  void *library = libraries[gpu + 1];
  return library ? *(int *)dlsym(library, "torchwheel_kernel_answer") : -1;
}
"""
KERNELS = """
const char torchwheel_interface[] = INTERFACE;
int torchwheel_kernel_answer = ANSWER;
"""


def compiled(path: Path, source: str, **macros: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".c").write_text(source)
    flags = [f"-D{name}={value}" for name, value in macros.items()]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", *flags, path.with_suffix(".c"), "-o", path], check=True
    )
    return path


@dataclasses.dataclass
class Installed:
    """A package with parts, on a machine whose facts are set."""

    extension: Extension
    folder: Path
    claimed: dict[str, Part]
    gpus: list[Gpu]

    def load(self):
        return runtime.load(self.extension, self.folder, {"plus": ("plus",)})

    def call(self) -> float:
        op = getattr(torch.ops, self.extension.namespace).plus
        return float(op(torch.zeros(1)))

    def file(self, name: str) -> Path:
        return self.folder.parent / self.claimed[name].file

    def claim_again(self, name: str) -> None:
        digest = hashlib.sha256(self.file(name).read_bytes()).hexdigest()
        self.claimed[name] = dataclasses.replace(self.claimed[name], sha256=digest)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    name = f"parted_{next(NUMBERS)}"
    folder = tmp_path / name
    library = Library(name, "DEF")
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: x + 1000, "CompositeExplicitAutograd")

    def part(kind: str, part_name: str, **facts: object) -> Part:
        path = folder / "_lib" / kind / f"{part_name}.so"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return Part(kind, part_name, f"{name}/_lib/{kind}/{part_name}.so", digest, **facts)

    compiled(folder / "_lib/front_end/stable.so", FRONT_END)
    claimed = {"stable": part("front_end", "stable", torch_release="2.6")}
    for toolkit, archs in {"12.4": ("8.0", "9.0+PTX"), "13.0": ("9.0", "10.0")}.items():
        short = f"cu{toolkit.replace('.', '')}"
        answer = short.removeprefix("cu")
        path = folder / f"_lib/kernels/{short}.so"
        compiled(path, KERNELS, ANSWER=answer, INTERFACE='"one"')
        claimed[short] = part(
            *("kernels", short),
            backend="cuda",
            toolkit_version=toolkit,
            archs=tuple(map(parse, archs)),
        )
    found = Installed(
        Extension(name, "csrc", (Operator("plus", ()),), dispatch="CPU"),
        folder,
        claimed,
        [Gpu(-1, "H100", parse("9.0"))],
    )
    registered = []

    def load_library(path: Path) -> None:
        front_end = ctypes.CDLL(str(path))
        kernels = Library(name, "IMPL")
        kernels.impl("plus", lambda x: x + front_end.answer(x.get_device()), "CPU")
        registered.append(kernels)

    here = Torch("2.13.0+cu130", "13.0", None, Path("/torch"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(parts, "load_library", load_library)
    monkeypatch.setattr(parts, "find_torch", lambda: here)
    monkeypatch.setattr(parts, "find_driver", lambda _: Driver("cuda", "580.1", "13.0"))
    monkeypatch.setattr(parts, "visible_gpus", lambda _: VisibleGpus(tuple(found.gpus)))
    monkeypatch.setattr(
        *(parts, "installed_claims"),
        lambda _: Claims("universal", "universal", "2.6", parts=tuple(claimed.values())),
    )

    def nothing_to_build_with(*_: object) -> None:
        raise OSError("no compiler here")

    monkeypatch.setattr(build, "obtain_library", nothing_to_build_with)
    for variable in ("TORCHWHEEL_MODE", "TORCHWHEEL_LIBRARY"):
        monkeypatch.delenv(variable, raising=False)
    yield found
    library._destroy()


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_the_best_library_is_loaded_at_the_first_call_and_no_other(installed, monkeypatch):
    asked = []
    monkeypatch.setattr(parts, "find_driver", lambda _: asked.append(1))
    installed.load()
    assert not asked
    assert not mapped(installed.file("stable"))
    monkeypatch.setattr(parts, "find_driver", lambda _: Driver("cuda", "580.1", "13.0"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert installed.call() == 130
    assert mapped(installed.file("cu130"))
    assert not mapped(installed.file("cu124"))
    status = runtime.status_of(installed.extension.package)
    assert status.library == installed.file("cu130")
    assert status.choices == (
        "front end: stable.so",
        "GPU -1 (H100, 9.0): cu130.so; cu124: cu130 fits better",
    )


def test_a_library_is_forced(installed, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_LIBRARY", "cu124")
    installed.load()
    assert installed.call() == 124


def test_an_unknown_name_is_a_warning(installed, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_LIBRARY", "cu125")
    installed.load()
    with pytest.warns(RuntimeWarning, match="TORCHWHEEL_LIBRARY=cu125: one of cu124, cu130"):
        assert installed.call() == 130


def test_each_kind_of_gpu_runs_what_fits_it(installed):
    installed.gpus.append(Gpu(0, "A100", parse("8.0")))
    installed.load()
    assert installed.call() == 130
    front_end = ctypes.CDLL(str(installed.file("stable")))
    assert [front_end.answer(gpu) for gpu in (-1, 0)] == [130, 124]


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
    *_, line = runtime.status_of(installed.extension.package).choices
    assert "_lib/kernels/cu130.so: " in line


def test_a_damaged_front_end_leaves_plain_pytorch_with_a_reason(installed):
    installed.file("stable").write_bytes(b"no library")
    installed.load()
    with pytest.warns(RuntimeWarning, match="is not the file that was installed; reinstall") as one:
        assert [installed.call() for _ in range(2)] == [1000, 1000]
    assert len(one) == 1


def test_a_library_for_another_front_end_is_not_used(installed):
    path = installed.file("cu130")
    compiled(path, KERNELS, ANSWER=130, INTERFACE='"two"')
    installed.claim_again("cu130")
    installed.load()
    with pytest.warns(RuntimeWarning, match="cu130.so: was built for another front end") as one:
        assert [installed.call() for _ in range(2)] == [1000, 1000]
    assert len(one) == 1


def test_a_gpu_without_code_is_one_warning_and_right(installed):
    """Another GPU has kernels, so the front end is in use."""
    installed.gpus[:] = [Gpu(-1, "K80", parse("3.7")), Gpu(0, "H100", parse("9.0"))]
    installed.load()
    with pytest.warns(RuntimeWarning, match=r"no kernel library serves GPU -1 \(K80, 3.7\)") as one:
        assert [installed.call() for _ in range(2)] == [1000, 1000]
    assert len(one) == 1


def test_only_gpus_without_code_take_the_way_to_build(installed):
    installed.gpus[:] = [Gpu(-1, "K80", parse("3.7"))]
    installed.load()
    with pytest.warns(RuntimeWarning, match="jit build: no compiler here"):
        assert installed.call() == 1000
    assert not mapped(installed.file("stable"))


def test_mode_error_raises_at_the_call_alone(installed, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_MODE", "error")
    installed.gpus[:] = [Gpu(-1, "K80", parse("3.7")), Gpu(0, "H100", parse("9.0"))]
    installed.load()
    with pytest.raises(RuntimeError, match="no kernel library serves GPU -1"):
        installed.call()


def test_a_torch_for_cpus_gets_the_front_end_alone(installed, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(parts, "find_torch", lambda: Torch("2.13.0+cpu", None, None, Path("/t")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        status = installed.load()
    assert status.library == installed.file("stable")
    assert loader.status_of(installed.extension.package) == status
