"""Compiles fusedops for a modelled GPU: the operators of some families, for CPU tensors.

A binding is the stable library, the extension module _C of an aten wheel, or the module over
DLPack, which gets its kernels from the stable library.
"""

import dataclasses
import os
import re
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths

from fusedops.extension import EXTENSION
from torchwheel_runtime.builder.ninja import Step, run
from torchwheel_runtime.lock import hold_lock, say_waiting

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "emulation"
MODELS = ("sm_75", "sm_80", "sm_90", "gfx90a", "gfx1100")
"""Names in csrc/platform/cpu/models.cpp."""

# Floating-point products and sums are contracted as nvcc does it by default.
COMMON = (
    *("g++", "-std=c++17", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique"),
    *("-ffp-contract=fast", "-Wall", "-Wextra", "-Werror"),
)
# The functions that these two call are in csrc/platform/cpu/hooks.cpp.
WATCHED = (
    *("-O1", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"),
    *("-fsanitize=undefined", "-fno-sanitize=vptr,object-size"),
    *("-Wno-unknown-pragmas", "-x", "c++"),
)
HOST = ("-O1", "-fsanitize=address", "-DFUSEDOPS_MODEL")
FRONT_END = ("-DTORCHWHEEL_FRONT_END", '-DTORCHWHEEL_PACKAGE="fusedops"')
BINDINGS = ("stable", "aten", "dlpack")


@dataclasses.dataclass(frozen=True)
class Library:
    """A library to build.

    Attributes:
        model: one of MODELS.
        families: the families of operators in it; empty for all.
        binding: one of BINDINGS.
        source: the tree that has csrc.
        build: the folder of the objects; those of the host side serve every model.
    """

    model: str
    families: Sequence[str] = ()
    binding: str = "stable"
    source: Path = ROOT
    build: Path = BUILD


def model_flags(model: str) -> tuple[str, ...]:
    """The macros that make the platform's headers choose what this GPU's compiler would."""
    number = model.removeprefix("sm_")
    vendor = "-D__HIP_PLATFORM_AMD__" if number == model else f"-D__CUDA_ARCH__={number}0"
    return (f"-DFUSEDOPS_MODEL={model}", vendor)


def compilers_fma() -> tuple[str, ...]:
    """The flag for fused multiply-add, where the processor needs one and has it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ()
    return ("-mfma",) if " fma " in text else ()


def plan(library: Library) -> tuple[Step, ...]:
    """The build of a library."""
    operators = [one for one in EXTENSION.operators if one.name in (library.families or [one.name])]
    csrc = library.source / EXTENSION.sources
    own = [f"-D{name}={value}" for name, value in EXTENSION.macros.items()]
    own += [f"-I{csrc / folder}" for folder in EXTENSION.include_dirs]
    own += [f"-I{library.source}/pkg/torchwheel_runtime/src/torchwheel_runtime/include"]
    # g++ has no other flags of nvcc or hipcc.
    given = EXTENSION.flags.cuda if library.model.startswith("sm_") else EXTENSION.flags.hip
    device = [word for word in given if word.startswith("-D")]
    model = model_flags(library.model)
    kernels = (
        (
            library.model,
            [file for one in operators for file in one.device],
            (*WATCHED, *model, *device),
        ),
        (library.model, ["platform/cpu/*.cpp"], ("-O2", *model)),
    )
    host = [*EXTENSION.host, *(file for one in operators for file in one.host)]
    groups = [*_binding_groups(library, host), *(kernels if library.binding != "dlpack" else ())]
    steps: dict[str, Step] = {}
    for folder, globs, flags in groups:
        for path in (path for pattern in globs for path in sorted(csrc.glob(pattern))):
            name = path.relative_to(csrc)
            # The one file of the host side that calls the GPU's runtime.
            runtime = name == Path("kernels/runtime.cpp")
            output = f"{library.model if runtime else folder}/{name}.o"
            more = ("-O2", *model) if runtime else flags
            command = (*COMMON, *compilers_fma(), *more, *own, "-MMD", "-MF", f"{output}.d")
            steps[output] = Step(
                f"C++ {name} for {library.model}",
                (*command, "-c", str(path), "-o", output),
                (str(path),),
                output,
                f"{output}.d",
            )
    families = "-".join(sorted(library.families)) or "all"
    output = {
        "stable": f"{library.model}/{families}.so",
        "aten": f"{library.model}/{families}/_C.so",
        "dlpack": f"{families}/dlpack.abi3.so",
    }[library.binding]
    link = ("g++", "-shared", "-o", output, *steps, "-fsanitize=address", "-Wl,--no-as-needed")
    if library.binding != "dlpack":
        link += (f"-L{Path(torch.__file__).parent}/lib", "-ltorch_cpu")
    if library.binding == "aten":
        link += ("-lc10", "-ltorch_python")
    steps[output] = Step(f"link {output}", (*link, "-ldl"), tuple(steps), output)
    return tuple(steps.values())


def _binding_groups(
    library: Library, host: Sequence[str]
) -> tuple[tuple[str, Sequence[str], Sequence[str]], ...]:
    """The host side and what meets torch and Python: a folder, the files and their flags each."""
    flags = (*HOST, *EXTENSION.flags.cxx)
    for_torch = ("-DUSE_CUDA", *(f"-isystem{path}" for path in include_paths()))
    python = f"-isystem{sysconfig.get_path('include')}"
    module = EXTENSION.module
    if library.binding == "stable":
        major, minor = (int(part) for part in torch.__version__.split(".")[:2])
        version = f"-DTORCH_TARGET_VERSION=0x{major:02x}{minor:02x}000000000000"
        stable = EXTENSION.operators[0].bindings["stable"]
        return ("host", host, flags), ("torch", stable, (*flags, version, *for_torch))
    if library.binding == "aten":
        csrc = library.source / EXTENSION.sources
        (operators,) = EXTENSION.operators[0].bindings["aten"]
        flags = (*flags, f"-DTORCH_EXTENSION_NAME={module.name.rpartition('.')[2]}")
        unit = (*flags, *for_torch, "-include", str(csrc / operators))
        return (
            ("host", host, (*HOST, *EXTENSION.flags.cxx)),
            ("aten", [module.binding], unit),
            # torch brings pybind11, which g++ warns of with AddressSanitizer.
            ("aten", module.python, (*flags, python, *for_torch, "-Wno-maybe-uninitialized")),
        )
    front = (*flags, *FRONT_END)
    files = [file for file in host if file not in EXTENSION.split.kernels]
    limited = (*front, "-DPy_LIMITED_API=0x030a0000", python, *for_torch)
    return ("front", files, front), ("front", EXTENSION.split.entry_points, limited)


def build(library: Library, jobs: int = 2, say=lambda line: None) -> Path:
    """Brings the library up to date; returns its path.

    Libraries of one folder are built in turn, because it has one ninja file.
    """
    library.build.mkdir(parents=True, exist_ok=True)
    with hold_lock(library.build / "lock", say_waiting(say, "another process builds here")):
        (made,) = run(plan(library), library.build, jobs, say)
    return made


def reaches(source: Path, csrc: Path, changed: set[str]) -> bool:
    """Whether the source, or a header that it includes, is one of the changed files."""
    todo, seen = [source], {source}
    while todo:
        path = todo.pop()
        if str(path.relative_to(csrc)) in changed:
            return True
        for name in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")):
            header = csrc / name
            if header.is_file() and header not in seen:
                seen.add(header)
                todo.append(header)
    return False


def build_with(library: Library, changed: Path) -> Path:
    """Builds the library with the files of `changed` in place of csrc's; returns its path.

    The library itself has been built: what the changed files do not reach is taken from there.
    """
    csrc = library.source / EXTENSION.sources
    names = {str(path.relative_to(changed)) for path in changed.rglob("*.c*") if path.is_file()}
    *compiles, link = plan(library)
    steps, objects = [], []
    for step in compiles:
        source = Path(step.inputs[0])
        if not reaches(source, csrc, names):
            objects.append(str(library.build / step.output))
            continue
        own = changed / source.relative_to(csrc)
        taken = str(own if own.is_file() else source)
        compiler, *rest = (taken if word == str(source) else word for word in step.command)
        command = (compiler, f"-I{changed}", *rest)
        steps.append(dataclasses.replace(step, command=command, inputs=(taken,)))
        objects.append(step.output)
    at = {step.output: given for step, given in zip(compiles, objects, strict=True)}
    output = "planted.so"
    command = tuple(output if word == link.output else at.get(word, word) for word in link.command)
    steps.append(Step(f"link {output}", command, tuple(objects), output))
    (made,) = run(steps, changed / "build", 1, lambda line: None)
    return made


def environment(library: Path, seed: int = 0, module: Path | None = None) -> dict[str, str]:
    """The variables of a process that uses a library, and a module for emulated_entry_points.py.

    The process needs AddressSanitizer's runtime first.
    """
    # libstdc++ too: the other runtime looks for its function that throws as the process begins.
    first = [_file_of("libasan.so"), _file_of("libstdc++.so.6")]
    options = {
        "detect_leaks": 0,  # Python's own
        "detect_odr_violation": 0,
        "max_malloc_fill_size": 1 << 30,  # memory that nobody wrote is NaN
        "malloc_fill_byte": 255,
        "quarantine_size_mb": 16,
        "allocator_may_return_null": 1,
    }
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(first),
        "ASAN_OPTIONS": ":".join(f"{name}={value}" for name, value in options.items()),
        "FUSEDOPS_EMULATION": str(library),
        "FUSEDOPS_MODULE": str(module or ""),
        "FUSEDOPS_SEED": str(seed),
        "OMP_NUM_THREADS": "1",
    }


def _file_of(name: str) -> str:
    command = ["g++", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
