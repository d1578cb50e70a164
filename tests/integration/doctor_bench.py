"""Set-ups of the doctor: libraries and packages, right or broken in one place, and their table."""

import dataclasses
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

import wheelmaker
from setups import TORCH, Setup
from torchwheel_runtime.claims import Claims

RELEASE = torch.__version__.partition("+")[0]
CUDA_TORCH = {"__version__": f"{RELEASE}+cu130", "cuda": "13.0"}
USES_TORCH = """
unsigned long long aoti_torch_abi_version(void);
unsigned long long demo(void) { return aoti_torch_abi_version(); }
"""
KERNEL = '__global__ void kernel(float *p) { *p += 1; }\nextern "C" {' + USES_TORCH + "}\n"
LOADS = """
from pathlib import Path
import torch
torch.ops.load_library(Path(__file__).with_name("_C.so"))
"""
BUILDS = """
from pathlib import Path
import torch
from torchwheel_runtime import runtime
from torchwheel_runtime.builder.extension import Extension, Operator
torch.library.define("demo::scale", "(Tensor x) -> Tensor")
scale = Operator("scale", device=("scale.cu",), bindings={"stable": ("scale.cpp",)})
runtime.load(Extension("demo", "csrc", (scale,)), Path(__file__).parent, {"scale": ("scale",)})
"""
"""The import of a package whose operators are built at their first call."""
LINKED = (f"-L{TORCH / 'lib'}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10")


class Bench:
    """One set-up in the making, and what it takes to make it."""

    def __init__(self, folder: Path, nvcc: Callable[[], Path], made: Path) -> None:
        self.folder = folder
        self.setup = Setup(folder)
        self.nvcc = nvcc
        self._made = made

    def compiled(
        self, code: str = USES_TORCH, *flags: str, links: tuple[str, ...] = LINKED
    ) -> bytes:
        """A library of C code, linked with torch."""
        (self.folder / "demo.c").write_text(code)
        library = self.folder / "_C.so"
        command = ["gcc", "-shared", "-fPIC", "demo.c", "-o", library, *flags, *links]
        subprocess.run(command, cwd=self.folder, check=True)
        return library.read_bytes()

    def stub(self, soname: str, symbol: str, version: str = "") -> str:
        """A library to link with that is on no system, e.g. one of another CUDA."""
        folder = self.folder / "stub"
        folder.mkdir(exist_ok=True)
        (folder / "stub.c").write_text(f"void {symbol}(void) {{}}\n")
        flags = ["-nostdlib", f"-Wl,-soname,{soname}"]
        if version:
            (folder / "map").write_text(f"{version} {{ {symbol}; }};\n")
            flags.append("-Wl,--version-script=map")
        command = ["gcc", "-shared", "-fPIC", *flags, "stub.c", "-o", soname]
        subprocess.run(command, cwd=folder, check=True)
        return str(folder / soname)

    def kernels(self, *archs: str) -> bytes:
        """A library with GPU code, e.g. for "80", or with PTX for "80+PTX"; made once."""
        library = self._made / f"{'_'.join(archs)}.so"
        if not library.exists():
            (self._made / "demo.cu").write_text(KERNEL)
            flags = [_gencode(arch) for arch in archs]
            links = [flag.replace("-Wl,", "-Xlinker=") for flag in LINKED]
            subprocess.run(
                [self.nvcc(), "-shared", "-Xcompiler=-fPIC", *flags, "demo.cu", "-o", library]
                + links,
                cwd=self._made,
                check=True,
            )
        return library.read_bytes()

    def install(
        self,
        library: bytes | None = None,
        *,
        code: str = LOADS,
        claims: Claims | None = None,
        requires: tuple[str, ...] = ("torch>=2.11",),
        tag: str = "py3-none-linux_x86_64",
        files: Mapping[str, bytes] | None = None,
        version: str = "1.0.0",
        with_pip: bool = False,
    ) -> None:
        """Install a wheel of `demo`, whose import is `code`."""
        held = {"demo/__init__.py": code.encode(), **(files or {})}
        if library is not None:
            held["demo/_C.so"] = library
        if claims is None:
            claims = wheelmaker.PURE if library is None else wheelmaker.stable(archs=("8.0",))
        wheel = wheelmaker.make_wheel(
            self.folder / "wheels",
            version=version,
            tag=tag,
            files=held,
            claims=claims,
            requires=requires,
        )
        if with_pip:
            self.setup.install(wheel)
        else:
            self.setup.unpack(wheel)


def calling(*names: str) -> str:
    """C code that needs these functions, mangled or not."""
    declared = "".join(f"void {name}(void);\n" for name in names)
    return f"{declared}void f(void) {{ {' '.join(f'{name}();' for name in names)} }}\n"


def _gencode(arch: str) -> str:
    number, _, ptx = arch.partition("+")
    code = f"[sm_{number},compute_{number}]" if ptx else f"sm_{number}"
    return f"-gencode=arch=compute_{number},code={code}"


Make = Callable[[Bench], "dict[str, str] | None"]
"""Breaks a set-up; what it returns is added to the environment of the doctor."""


@dataclasses.dataclass(frozen=True)
class Broken:
    """A row of the table: what is broken, how it is made, and the exit status.

    Before it is broken, it has the torch of the tests, which says `torch` of itself, an NVIDIA GPU
    with the facts `gpu`, and a package whose import is `code`; None: it has none.
    """

    what: str
    make: Make
    status: int = 1
    arguments: tuple[str, ...] = ("demo",)
    torch: Mapping[str, str] | None = dataclasses.field(default_factory=dict)
    gpu: Mapping[str, str | int] | None = None
    code: str | None = None

    def prepare(self, bench: Bench) -> dict[str, str]:
        """Make the set-up; returns what it adds to the environment of the doctor."""
        if self.torch is not None:
            bench.setup.add_torch(**self.torch)
        if self.gpu is not None:
            bench.setup.add_gpu(**self.gpu)
        if self.code is not None:
            bench.install(code=self.code)
        return self.make(bench) or {}


ROWS: list[Broken] = []


def row(what: str, **more: object) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        ROWS.append(Broken(what, make, **more))  # type: ignore[arg-type]
        return make

    return add
