"""What an ABI flavour brings to a build, as flags."""

import dataclasses
from pathlib import Path

from torchwheel.builder.extension import Module
from torchwheel.builder.target import Python, Target, Torch

_HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Group:
    """C++ files that are compiled alike; the flags depend on what the name says and no more."""

    name: str
    flags: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Flavour:
    """Parts of command lines.

    Attributes:
        host: torch-free host code.
        binding: what meets torch.
        python: what meets Python.
        stubs: sonames of torch's that the library needs; it is linked against empty ones.
        link: the linker's flags.
        exports: the linker's list of what the library shows.
        output: the library's file name.
    """

    host: Group
    binding: Group
    python: Group | None
    stubs: tuple[str, ...]
    link: tuple[str, ...]
    exports: Path
    output: str


def stable(target: Target) -> Flavour:
    """The stable ABI: C functions of torch's and no mangled name; any torch from the floor on."""
    version = f"-DTORCH_TARGET_VERSION={target_version(target.torch.release)}"
    return Flavour(
        host=Group("host", ("-O2",)),
        binding=Group(
            f"stable{target.torch.release}", ("-O2", "-DUSE_CUDA", version, *_torch(target.torch))
        ),
        python=None,
        # Without this entry the loader cannot find torch's C functions.
        stubs=("libtorch.so",),
        # Any libstdc++ of the user serves then, and the platform tag falls.
        # Not libgcc too: its unwinder would bring glibc 2.35's _dl_find_object.
        link=("-static-libstdc++",),
        # torch loads the library for what it registers: it has nothing to show, least of all
        # libstdc++'s weak symbols.
        exports=_HERE / "library.map",
        output=f"{target.name}.so",
    )


def aten(target: Target, module: Module | None) -> Flavour:
    """Torch's C++ API, for one torch: an extension module for one CPython, else a plain library."""
    old, python = target.torch.old_abi, target.python
    strings = ("-D_GLIBCXX_USE_CXX11_ABI=0",) if old else ()
    # -O1: torch's and pybind11's templates compile in four fifths of -O2's time.
    # NDEBUG, as in Python's own flags: those headers' assertions are for their authors.
    binding = ("-O1", "-DNDEBUG", "-DUSE_CUDA", *strings, *_torch(target.torch))
    return Flavour(
        host=Group("host-old-strings" if old else "host", ("-O2", *strings)),
        binding=Group(f"aten{target.torch.release}", binding),
        python=Group(
            f"python{python.suffix.removesuffix('.so')}", ("-O1", "-DNDEBUG", *_python(python))
        )
        if python
        else None,
        stubs=("libtorch.so", *(("libtorch_python.so",) if python else ())),
        # libstdc++ stays shared, as torch has it: strings and exceptions go there and come back.
        # With a static one torch 2.6 aborts at import, `free(): invalid pointer`: an empty string
        # of its ABI is a pointer into the copy of libstdc++ that made it.
        link=(),
        exports=_HERE / ("module.map" if python else "library.map"),
        output=f"{module.name.rpartition('.')[2]}{python.suffix}"
        if python and module
        else f"{target.name}.so",
    )


def target_version(floor: str) -> str:
    """TORCH_TARGET_VERSION of a torch release: "2.11" is 0x020b000000000000."""
    major, minor = (int(part) for part in floor.split(".")[:2])
    return f"0x{major:02x}{minor:02x}000000000000"


def headers(folder: Path, name: str) -> tuple[str, ...]:
    """An include folder that is not ours to make warning-free, known to __FILE__ as `name`."""
    return (f"-ffile-prefix-map={folder}={name}", "-isystem", str(folder))


def _torch(torch: Torch) -> tuple[str, ...]:
    api = torch.include / "torch" / "csrc" / "api" / "include"
    return (*headers(torch.include, "torch"), "-isystem", str(api))


def _python(python: Python) -> tuple[str, ...]:
    return (*headers(python.pybind11, "pybind11"), *headers(python.include, "python"))
