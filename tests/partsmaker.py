"""Makes an installed universal wheel of small gcc libraries, on a machine whose facts a test sets.

"GPU" -1 is where CPU tensors are, so that calls can be made.
"""

import ctypes
import dataclasses
import functools
import hashlib
import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from torch.library import Library

from torchwheel_runtime import runtime
from torchwheel_runtime.arch.devices import Driver, Gpu, VisibleGpus
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.builder import Extension, Operator
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.loadable import LoadableFile, open_loadable
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.runtime import front_end, operator_library, prebuilt, universal

NUMBERS = itertools.count()
FRONT_END = """
#include <dlfcn.h>
#include <stdbool.h>
const char torchwheel_interface[] = "torchwheel_interface=one";
static void *libraries[8][8];
bool torchwheel_use_kernels(int gpu, void *library) {
  void **of_gpu = libraries[gpu + 1];
  while (*of_gpu) ++of_gpu;
  *of_gpu = library;
  return true;
}
int answer(int gpu) {
  void *library = libraries[gpu + 1][0];
  return library ? *(int *)dlsym(library, "torchwheel_kernel_answer") : -1;
}
"""
KERNELS = """
const char torchwheel_interface[] = "torchwheel_interface=" INTERFACE;
int torchwheel_kernel_answer = ANSWER;
"""
H100, K80 = Gpu(-1, "H100", parse("9.0")), Gpu(-1, "K80", parse("3.7"))


def compiled(path: Path, source: str, **macros: object) -> Path:
    """A library at `path`; each is compiled once in a test run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(_compiled(source, *macros.items()), path))


@functools.cache
def _compiled(source: str, *macros: tuple[str, object]) -> Path:
    folder = Path(tempfile.mkdtemp(dir=_FOLDER.name))
    (folder / "library.c").write_text(source)
    flags = [f"-D{name}={value}" for name, value in macros]
    command = ["gcc", "-shared", "-fPIC", *flags, "library.c", "-o", "library.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "library.so"


_FOLDER = tempfile.TemporaryDirectory()


def kernels(path: Path, answer: int, interface: str = "one") -> Path:
    return compiled(path, KERNELS, ANSWER=answer, INTERFACE=f'"{interface}"')


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@dataclasses.dataclass
class Installed:
    """A package with parts.

    Attributes:
        claimed: the parts by name.
        gpus: the visible GPUs.
        registered: the front ends that registered their operators with torch.
        builds: the family and the GPU of each build; `build_answer` is what its kernels answer.
    """

    extension: Extension
    folder: Path
    claimed: dict[str, Part]
    gpus: list[Gpu]
    registered: list[Path] = dataclasses.field(default_factory=list)
    builds: list[tuple[str, Gpu | None]] = dataclasses.field(default_factory=list)
    build_answer: int | None = None
    build_interface: str = "one"

    def load(self):
        return runtime.load(self.extension, self.folder, {"plus": ("plus",)})

    def status(self):
        return runtime.status_of(self.extension.package)

    @property
    def op(self):
        return getattr(torch.ops, self.extension.namespace).plus

    def call(self) -> float:
        return float(self.op(torch.zeros(1)))

    def answers(self, *gpus: int) -> list[int]:
        """What the front end's kernels answer for each GPU; -1 without kernels."""
        opened = ctypes.CDLL(str(self.file("stable")))
        return [opened.answer(gpu) for gpu in gpus]

    def file(self, name: str) -> Path:
        return self.folder.parent / self.claimed[name].file

    def claim_again(self, name: str) -> None:
        digest = hashlib.sha256(self.file(name).read_bytes()).hexdigest()
        self.claimed[name] = dataclasses.replace(self.claimed[name], sha256=digest)

    def obtain(self, extension, package, name, *, kernels_for=None):
        """Stands for a build."""
        self.builds.append((name, kernels_for))
        if self.build_answer is None:
            raise OSError("no compiler here")
        path = self.folder.parent / "cache" / f"{name}-{len(self.builds)}.so"
        return open_loadable(kernels(path, self.build_answer, self.build_interface)), "jit build"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, library: Library) -> Installed:
    """Install the wheel below `folder`; `library` is to define its operator."""
    name = library.ns
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: x + 1000, "CompositeExplicitAutograd")
    library.impl("plus", torch.empty_like, "Meta")

    def part(kind: str, part_name: str, **facts: object) -> Part:
        path = folder / name / "_lib" / kind / f"{part_name}.so"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return Part(kind, part_name, f"{name}/_lib/{kind}/{part_name}.so", digest, **facts)

    compiled(folder / name / "_lib/front_end/stable.so", FRONT_END)
    claimed = {"stable": part("front_end", "stable", torch_release="2.6")}
    for toolkit, archs in {"12.4": ("8.0", "9.0+PTX"), "13.0": ("9.0", "10.0")}.items():
        short = f"cu{toolkit.replace('.', '')}"
        kernels(folder / name / f"_lib/kernels/{short}.so", int(short.removeprefix("cu")))
        facts = {"toolkit_version": toolkit, "archs": tuple(map(parse, archs))}
        claimed[short] = part("kernels", short, backend="cuda", **facts)
    extension = Extension(name, "csrc", (Operator("plus", ()),), dispatch="CPU")
    found = Installed(extension, folder / name, claimed, [H100])
    kept = []  # a Library undoes its registrations when it is collected

    def load_library(library: LoadableFile) -> None:
        opened = library.load()
        of_front_end = Library(name, "IMPL")
        of_front_end.impl("plus", lambda x: x + opened.answer(x.get_device()), "CPU")
        found.registered.append(library.path)
        kept.append(of_front_end)

    here = Torch("2.13.0+cu130", "13.0", None, Path(torch.__file__).parent)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(front_end, "load_library", load_library)
    monkeypatch.setattr(universal, "find_torch", lambda: here)
    monkeypatch.setattr(universal, "find_driver", lambda _: Driver("cuda", "580.1", "13.0"))
    monkeypatch.setattr(universal, "visible_gpus", lambda _: VisibleGpus(tuple(found.gpus)))
    for module in (universal, prebuilt):
        monkeypatch.setattr(module, "installed_claims", lambda _: claims(found))
    monkeypatch.setattr(operator_library, "obtain_library", found.obtain)
    for variable in ("TORCHWHEEL_MODE", "TORCHWHEEL_LIBRARY", "TORCHWHEEL_IGNORE"):
        monkeypatch.delenv(variable, raising=False)
    return found


def claims(found: Installed) -> Claims:
    return Claims("universal", "universal", "2.6", parts=tuple(found.claimed.values()))
