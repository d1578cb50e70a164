"""What the build scripts of a project name: arguments, extensions, archs, variables, questions.

`setup_search` finds it in Python, `project_scripts` in CMake files. No expression is evaluated.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from torchwheel.matrix.sections import ArchsBy
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.arch.releases import ToolkitRelease

SETUP = "setup.py"
ARCH_LIST = "TORCH_CUDA_ARCH_LIST"
# A flag such as `arch=compute_90,code=[sm_90,compute_90]`, `-arch=sm_80` or `--gpu-architecture=…`.
_CODE = re.compile(r"(?<!\w)(code|arch|gpu-architecture|gpu-code)=(?:\[([\w,]+)\]|(\w+))")
_NUMBER = re.compile(r"(sm|compute|lto)_([1-9][0-9]?)([0-9])([af]?)\Z")
ASKS_TORCH = frozenset(
    {
        *("is_available", "device_count", "current_device", "get_device_name"),
        *("get_device_capability", "get_device_properties"),
    }
)
"""Functions of torch.cuda whose answer depends on the machine's GPUs; a build answers them itself
(`torchwheel.compilers.pretended_gpu`)."""
TOOLKIT_HOMES = frozenset({"CUDA_HOME", "ROCM_HOME", "HIP_HOME"})
QUESTION = re.compile(
    r"(?<![\w.])(nvidia-smi|rocminfo|rocm-smi|rocm_agent_enumerator|amdgpu-arch|lspci|pynvml"
    r"|/dev/nvidia\w*|/proc/driver/nvidia|libcuda\.so(?:\.1)?|CUDA_DETECT_INSTALLED_GPUS"
    rf"|torch\.cuda\.(?:{'|'.join(sorted(ASKS_TORCH))}))\b"
)


@dataclasses.dataclass(frozen=True)
class Mention:
    """Something that a build script names, and the place, e.g. "setup.py:12"."""

    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"


class Question(Mention):
    """Something of the machine that decides what is compiled."""

    @property
    def answer(self) -> str:
        """Who answers it in a build, which has no GPU; empty for nobody."""
        if self.name in TOOLKIT_HOMES:
            return "the toolkit"
        return "a GPU of each arch" if self.name.rpartition(".")[2] in ASKS_TORCH else ""


# Words of a variable's name by which it may decide whether kernels are compiled, and by which not.
_COMPILES = frozenset({"BUILD", "CUDA", "COMPILE", "GPU"})
_KERNELS = _COMPILES | {
    *("ARCH", "ARCHS", "BACKEND", "CAPABILITY", "COMPUTE", "DEVICE", "EXT", "EXTENSION"),
    *("EXTENSIONS", "EXTS", "KERNEL", "KERNELS", "OPS", "SM", "SMS", "TARGET"),
}
_OTHERWISE = frozenset({"ABI", "CPU", "CXX11", "NO", "ONLY", "SKIP"})
_NO_SWITCH = _OTHERWISE | {
    *("CACHE", "DATE", "DEBUG", "DIR", "DISABLE", "DIST", "DOC", "DOCS", "FLAGS", "HIP", "HOME"),
    *("INCLUDE", "JOBS", "LEVEL", "LIB", "LINEINFO", "LOCAL", "NUMBER", "PARALLEL", "PATH", "PTX"),
    *("ROCM", "ROOT", "SUFFIX", "SYCL", "TAG", "TEST", "TESTS", "THREADS", "TYPE", "VERBOSE"),
    *("VERSION", "VISIBLE", "WITHOUT", "WORKERS", "XPU"),
}
_NAMES_ARCHS = frozenset({"ARCH", "ARCHS", "CAPABILITY", "SM", "SMS"})
_ON = {
    **{"FALSE": "TRUE", "False": "True", "false": "true", "OFF": "ON", "no": "yes", "NO": "YES"},
    "0": "1",
}


@dataclasses.dataclass(frozen=True)
class BuildVariable(Mention):
    """An environment variable that a build script reads, an option of CMake, or an argument.

    Attributes:
        default: the text that it has by default; None if none is spelled out.
        choices: the values that a script lists.
        given: where a user gives it: CMake takes -DNAME=VALUE, setup.py words of its command line.
    """

    default: str | None = None
    choices: tuple[str, ...] = ()
    given: Literal["environment", "CMake", "argument"] = "environment"

    @property
    def _words(self) -> frozenset[str]:
        return frozenset(re.split("[_-]", self.name.upper()))

    @property
    def forces(self) -> bool:
        """Whether it makes the build compile, where it would download or skip."""
        words = self._words
        return "FORCE" in words and bool(words & _COMPILES) and not words & _OTHERWISE

    @property
    def is_switch(self) -> bool:
        """Whether kernels may depend on it, going by its name and its default."""
        if self.name == ARCH_LIST or self.default in _ON.values():
            return False
        return self.forces or bool(self._words & _KERNELS and not self._words & _NO_SWITCH)

    @property
    def names_archs(self) -> bool:
        """Whether it is a switch that names archs."""
        return self.is_switch and bool(self._words & _NAMES_ARCHS)

    @property
    def on(self) -> str:
        """The text that turns it on, which is like the text of its default; empty if unknown."""
        if "cuda" in self.choices:
            return "cuda"
        if self.default in _ON:
            return _ON[self.default]
        return "1" if self.forces else ""

    @property
    def is_set(self) -> bool:
        """Whether an adopted project's builds set it to `on`."""
        return self.is_switch and bool(self.on) and self.default != self.on

    @property
    def is_guess(self) -> bool:
        """Whether nothing says that `on` turns kernels on."""
        return not (self.forces and self.default in _ON)


@dataclasses.dataclass(frozen=True)
class DeclaredExtension:
    """A native extension; its name is None if it is no plain text.

    `limited_api` says whether its library keeps to Python's limited API.
    """

    kind: str
    place: str
    name: str | None
    limited_api: bool = False


@dataclasses.dataclass(frozen=True)
class BuildScript:
    """What the build scripts of a project name.

    Attributes:
        arguments: of setup(), those that are plain values.
        code: of setup(), the other ones, and their places.
        extensions: in the order of the file.
        archs: of compiler flags, each once.
        own_archs: whether a script sets the archs, so that the environment does not decide.
        variables: of the environment, of CMake and of the command line, each once.
        questions: whose answers depend on the machine.
        modules: that setup.py imports and needs, beside the standard library; and "cmake" and
            "ninja", if it starts CMake and no build backend brings them.
        loads: files of the project that it would import or run, where they exist.
        cmake: whether CMake compiles it.
        ninja: False if setup.py does without.
        stable: the oldest torch whose stable ABI it keeps to, by TORCH_TARGET_VERSION.
        todo: what a person must look up.
    """

    arguments: Mapping[str, object]
    code: Mapping[str, str]
    extensions: tuple[DeclaredExtension, ...] = ()
    archs: tuple[CudaArch, ...] = ()
    own_archs: bool = False
    variables: tuple[BuildVariable, ...] = ()
    questions: tuple[Question, ...] = ()
    modules: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    cmake: bool = False
    ninja: bool = True
    stable: Mention | None = None
    todo: tuple[str, ...] = ()

    @property
    def switches(self) -> Iterator[str]:
        """What may leave the kernels out of a build, each with its place."""
        for question in self.questions:
            if not question.answer:
                yield f"{question.place} asks for a GPU ({question.name})"
        for variable in self.variables:
            if variable.is_switch:
                yield f"{variable.place} reads {variable.name}"


def merge(first: BuildScript, others: Iterable[BuildScript]) -> BuildScript:
    """`first`, with what the other scripts of its project name; their arguments are not setup's."""
    scripts = [first, *others]
    return dataclasses.replace(
        first,
        extensions=tuple(one for script in scripts for one in script.extensions),
        archs=tuple(dict.fromkeys(one for script in scripts for one in script.archs)),
        own_archs=any(script.own_archs for script in scripts),
        variables=each_once(one for script in scripts for one in script.variables),
        questions=tuple(dict.fromkeys(one for script in scripts for one in script.questions)),
        modules=tuple(sorted({one for script in scripts for one in script.modules})),
        cmake=any(script.cmake for script in scripts),
        ninja=all(script.ninja for script in scripts),
        stable=next((script.stable for script in scripts if script.stable), None),
        todo=tuple(dict.fromkeys(one for script in scripts for one in script.todo)),
    )


_TARGET = re.compile(r"TORCH_TARGET_VERSION\W{1,9}0x([0-9a-f]{2})([0-9a-f]{2})0{12}", re.I)


def stable_target(text: str) -> str | None:
    """The torch minor that a flag names: "2.10" for -DTORCH_TARGET_VERSION=0x020a000000000000."""
    found = _TARGET.search(text)
    return f"{int(found[1], 16)}.{int(found[2], 16)}" if found else None


def archs_in(text: str) -> Iterator[CudaArch]:
    """The archs that a compiler flag names, PTX as `+PTX` of its arch."""
    machine: list[CudaArch] = []
    ptx: list[CudaArch] = []
    flags = [(one[1], (one[2] or one[3]).split(",")) for one in _CODE.finditer(text)]
    has_code = any(kind.endswith("code") for kind, _ in flags)
    for kind, names in flags:
        if has_code and not kind.endswith("code"):
            continue  # `arch=` beside `code=` says what is compiled, not what is kept.
        for name in names:
            found = _NUMBER.match(name)
            if found is None:
                continue
            suffix: Literal["", "a", "f"] = "a" if found[4] == "a" else "f" if found[4] else ""
            arch = CudaArch(int(found[2]), int(found[3]), suffix)
            (machine if found[1] == "sm" else ptx).append(arch)
            if not has_code:
                ptx.append(arch)  # nvcc keeps PTX of what `-arch` alone names.
    for arch in dict.fromkeys([*machine, *ptx]):
        yield arch.with_ptx(arch in ptx)


def hard_coded_archs(
    script: BuildScript, release: ToolkitRelease
) -> tuple[tuple[CudaArch, ...], ArchsBy]:
    """The archs that a script hard-codes and a release can compile, and who decides about them.

    Code for one arch alone (9.0a) is built as the script says; nvcc's other archs are replaced.
    """
    if not script.archs:
        return (), "replaced" if script.own_archs else "environment"
    able = {arch.in_binary for arch in release.archs if isinstance(arch, CudaArch)}
    kept: dict[CudaArch, bool] = {}
    for arch in script.archs:
        if arch.in_binary in able:
            kept[arch.in_binary] = kept.get(arch.in_binary, False) or arch.ptx
    archs = tuple(arch.with_ptx(ptx) for arch, ptx in sorted(kept.items()))
    return archs, "declared" if any(arch.suffix for arch in kept) else "replaced"


def each_once(variables: Iterable[BuildVariable]) -> tuple[BuildVariable, ...]:
    """Each variable at its first place, with the first default that a place spells out."""
    found: dict[str, BuildVariable] = {}
    for one in variables:
        first = found.setdefault(one.name, one)
        if first.default is None:
            found[one.name] = dataclasses.replace(first, default=one.default)
    return tuple(found.values())
