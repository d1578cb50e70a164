"""From a library's sources and a target to the whole build, as data."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from torchwheel_runtime.arch.model import Arch, CudaArch, gencode
from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.builder.flags import Flags
from torchwheel_runtime.builder.flavour import (
    HOST_LINK,
    Flavour,
    GpuCompiler,
    aten,
    cuda,
    entry_points,
    front_end,
    headers,
    kernels,
    ordinary,
    rocm,
    stable,
)
from torchwheel_runtime.builder.ninja import Step
from torchwheel_runtime.builder.sources import Sources
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.files import sha256

# What the library does not use is left out by the linker.
_POSITION = ("-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")
_WARNINGS = ("-Wall", "-Wextra")
INCLUDE = Path(__file__).parents[1] / "include"
"""torchwheel's own headers, which every extension can include: <torchwheel/kernels.h>."""


INTERFACE = 1
"""The version of what <torchwheel/kernels.h> and interface.c put into libraries.

Raise it with a change after which older libraries must not be joined with new ones. A digest of the
two files would be too strict: a newer torchwheel builds kernels for a front end that is installed.
"""
_INTERFACE_FILE = Path(__file__).with_name("interface.c")


def own_sources_digest() -> str:
    """A digest of torchwheel's own sources: the headers, and interface.c."""
    names = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.rglob("*.h"))
    return _digest(INCLUDE, names) + sha256(_INTERFACE_FILE)


def _digest(folder: Path, names: Iterable[str]) -> str:
    lines = "".join(f"{name}\0{sha256(folder / name)}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def _interface_group(shared: Sequence[str], target: Target) -> Mapping[str, tuple[Step, ...]]:
    """The file with the digest of the shared headers; the digest names its group."""
    whole = f"{INTERFACE}\n{_digest(target.source, shared)}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    source, output = str(_INTERFACE_FILE), "obj/torchwheel/interface.o"
    command = (target.cxx, "-x", "c", *target.sysroot, *_POSITION)
    command += (f'-DTORCHWHEEL_INTERFACE="{digest}"', "-c", source, "-o", output)
    return {f"interface-{digest}": (Step("C interface", command, (source,), output),)}


def _for_device(flags: Iterable[str], backend: GpuCompiler) -> Iterator[str]:
    """Flags as the device compiler takes them: its own, and those it has to pass on."""
    for flag in flags:
        own = flag.startswith(("-D", "-I", "--expt")) or not flag.startswith("-")
        if own or flag == "-isystem" or not backend.pass_on:
            yield flag
        else:
            yield from (*backend.pass_on, _for_shell(flag))


def _for_shell(flag: str) -> str:
    """A flag for the host compiler, which nvcc calls by a shell and without quotes of its own."""
    if not re.search(r"[^\w@%+=:,./~-]", flag, re.ASCII):
        return flag
    return '"' + re.sub(r'(["\\$`])', r"\\\1", flag) + '"'


def object_name(source: str) -> str:
    """Where a source's object lies, e.g. "obj/csrc/kernels/bias.cu.o"."""
    return str(PurePosixPath("obj") / f"{source}.o")


def _common(extension: Extension, target: Target) -> tuple[str, ...]:
    """What every file of the library gets."""
    values = dict(extension.macros)
    if target.part in _FRONT_ENDS:
        values["TORCHWHEEL_PACKAGE"] = f'"{extension.package}"'  # begins the errors of kernels.h
    macros = (f"-D{name}={value}" if value else f"-D{name}" for name, value in values.items())
    return (*macros, *(f"-I{target.source / folder}" for folder in extension.include_dirs))


def _prefix_maps(target: Target) -> tuple[str, ...]:
    """Keep the folders of this machine out of __FILE__, so that any folder gives the same bytes."""
    toolkit = target.toolkit
    return (
        f"-ffile-prefix-map={target.source}=.",
        f"-ffile-prefix-map={toolkit.root}={toolkit.backend}",
    )


def _named(source: str, backend: GpuCompiler) -> tuple[str, ...]:
    """The flag that names a source; letters, digits and underscores are what clang takes."""
    name = re.sub(r"\W", "_", source, flags=re.ASCII)
    return (f"{backend.name_source}{name}",) if backend.name_source else ()


def _compile(
    label: str,
    compiler: tuple[str, ...],
    source: str,
    target: Target,
    form: str = "-c",
    output: str = "",
) -> Step:
    """From a source to its object, with the headers it included in a depfile."""
    path, output = str(target.source / source), output or object_name(source)
    depfile = f"{output}.d"
    command = (*compiler, "-MD", "-MF", depfile, form, path, "-o", output)
    return Step(label, command, (path,), output, depfile)


HOST = ".host.o"
"""End of the output of a part that is the host side."""


def parts_of(archs: Sequence[Arch]) -> Iterator[tuple[str, str, str, str]]:
    """The parts of a CUDA file's compile: the code for each arch, and the host side.

    Of each it gives a name for a person, nvcc's option for its output, nvcc's option for its arch,
    and the end of its output's name.

    nvcc compiles the archs of a file one after another and puts them into one object. Where several
    jobs compile, each takes some of the parts, and the job that links joins them (`join_parts`).
    There are none for HIP and for one arch.

    The host side's object has the PTX of one arch, in whose place the code for all is put.
    """
    cuda = [arch for arch in archs if isinstance(arch, CudaArch)]
    if len(cuda) < 2:
        return
    for arch in cuda:
        number = arch.number
        virtual = f"-gencode=arch=compute_{number},code="
        yield arch.name, "-cubin", f"{virtual}sm_{number}", part_end("elf", number)
        if arch.ptx:
            name = f"{arch.name}, PTX"
            yield name, "-ptx", f"{virtual}compute_{number}", part_end("ptx", number)
    first = cuda[0].number
    yield "the host", "-c", f"-gencode=arch=compute_{first},code=compute_{first}", HOST


def part_output(whole: str, end: str) -> str:
    """The output of a part, e.g. "a.cu.sm_90.cubin" of "a.cu.o"."""
    return f"{whole.removesuffix('.o')}{end}"


def part_end(kind: str, number: str) -> str:
    """The end of a part's output: of machine code ("elf") or PTX for an arch."""
    return f".sm_{number}.cubin" if kind == "elf" else f".compute_{number}.ptx"


_BACKENDS = {"cuda": cuda, "rocm": rocm}
_FRONT_ENDS = ("front_end", "entry_points")


class Recipe:
    """A build in parts.

    Attributes:
        groups: compile steps by group; device code is one. The objects of a group can be shared.
        target: what is built.
        backend: the GPU platform's part.
        flavour: the ABI's part.
        flags: the extension's own.
        libraries: files of the libraries that the extension brings along.
        verbose: whether the commands are printed.
    """

    def __init__(self, extension: Extension, sources: Sources, target: Target) -> None:
        """The build of the extension's `sources` for `target`."""
        self.target = target
        self.backend = _BACKENDS[target.toolkit.backend](target)
        self.flavour = _flavour(extension, target)
        self.flags = extension.flags_for(target.toolkit.release, target.probes)
        self.verbose = extension.verbose
        if target.part in _FRONT_ENDS:
            self.flags = dataclasses.replace(self.flags, cuda=(), hip=())  # there is no device code
            # They know no GPU's runtime.
            self.backend = dataclasses.replace(self.backend, headers=(), link=HOST_LINK)
        self.libraries = tuple(str(target.source / file) for file in sources.libraries)
        groups = {
            self.flavour.device.name: self._device_steps(extension, sources),
            **self._host_groups(extension, sources),
        }
        self.groups: Mapping[str, tuple[Step, ...]] = {
            name: steps for name, steps in groups.items() if steps
        }
        if sources.interface:
            self.groups = {**self.groups, **_interface_group(sources.interface, target)}

    def _device_steps(self, extension: Extension, sources: Sources) -> tuple[Step, ...]:
        backend, flavour, target = self.backend, self.flavour, self.target
        strict = backend.strict if flavour.warnings else ()
        command = (*backend.compiler, *strict, *backend.flags)
        command += (*_for_device((*self._for_all(), *flavour.device.flags), backend),)
        command += (*_common(extension, target), *self.flags.cuda, *self.flags.hip)
        steps = []
        for path, archs in sources.device.items():
            label = f"{backend.label} {path}"
            codes = (flag for arch in archs for flag in gencode(arch))
            whole = _compile(label, (*command, *codes, *_named(path, backend)), path, target)
            parts = tuple(
                _compile(
                    *(f"{label} for {name}", (*command, code), path, target),
                    *(form, part_output(whole.output, end)),
                )
                for name, form, code, end in parts_of(archs)
            )
            steps.append(dataclasses.replace(whole, parts=parts))
        return tuple(steps)

    def _host_groups(self, extension: Extension, sources: Sources) -> dict[str, tuple[Step, ...]]:
        flavour, target = self.flavour, self.target
        strict = ("-Werror",) if flavour.warnings else ()
        host = (target.cxx, target.standard, *self._for_all(), *strict, *_common(extension, target))
        included = tuple(
            word for file in sources.included for word in ("-include", str(target.source / file))
        )
        groups = {}
        for group, files, before in (
            (flavour.host, sources.host, ()),
            (flavour.binding, sources.binding, included),
            (flavour.python, sources.python, ()),
        ):
            if group:
                command = (*host, *group.flags, *self.backend.headers, *self.flags.cxx, *before)
                groups[group.name] = tuple(
                    _compile(f"C++ {file}", command, file, target) for file in files
                )
        return groups

    def _for_all(self) -> tuple[str, ...]:
        """Flags for every file, which a device compiler passes on to the host's."""
        warnings = _WARNINGS if self.flavour.warnings else ()
        own = headers(INCLUDE, "torchwheel")
        target = self.target
        return (*target.sysroot, *_POSITION, *warnings, *_prefix_maps(target), *own)

    def whole(self) -> tuple[Step, ...]:
        """Everything in one folder."""
        steps = tuple(step for group in self.groups.values() for step in group)
        return (*steps, *self.link_steps([step.output for step in steps]))

    def flag_texts(self) -> tuple[str, ...]:
        """The extension's own flags and the operators that are left out, for the claims."""
        words = self.flags.words()
        flags = (f"{field}: {word}" for field in words for word in words[field])
        return (*flags, *(f"operator off: {name}" for name in sorted(self.target.operators_off)))

    def link_steps(self, objects: Sequence[str]) -> tuple[Step, ...]:
        """From objects to the library."""
        stubs = [_stub_step(soname, self.target) for soname in self.flavour.stubs]
        return (*stubs, self._link_step(objects, [stub.output for stub in stubs]))

    def _link_step(self, objects: Sequence[str], stubs: Sequence[str]) -> Step:
        flavour = self.flavour
        command = (
            self.target.cxx,
            "-shared",
            *self.target.sysroot,
            *flavour.link,
            f"-Wl,--version-script={flavour.exports}",
            "-Wl,--gc-sections",
            # The symbol table holds temporary names with a process id in them.
            "-Wl,--strip-all",
            "-Wl,--build-id=none",
            "-o",
            flavour.output,
            *objects,
            "-Wl,--no-as-needed",
            *stubs,
            "-Wl,--as-needed",
            *link_flags(self.flags, self.target),
            *self.backend.link,
        )
        inputs = (*objects, *stubs, str(flavour.exports), *self.libraries)
        return Step(f"link {flavour.output}", command, inputs, flavour.output)


def link_flags(flags: Flags, target: Target) -> Iterator[str]:
    """The extension's own flags of the link."""
    yield from (f"-L{target.source / folder}" for folder in flags.library_dirs)
    # ROCm's folder would let this system's libraries in before a sysroot's.
    if flags.libraries and target.toolkit.backend == "cuda":
        yield f"-L{target.toolkit.runtime.parent}"
    yield from (f"-l{name}" for name in flags.libraries)
    yield from flags.link


def folders_of(target: Target) -> dict[str, Path]:
    """The folders of this machine that commands name; see `strip_folders`."""
    return {
        "source": target.source,
        "toolkit": target.toolkit.root,
        "torch": target.torch.root,
        "torchwheel": Path(__file__).parents[1],
    }


def strip_folders(
    commands: Iterable[Iterable[str]], folders: Mapping[str, Path]
) -> tuple[tuple[str, ...], ...]:
    """Replace this machine's folders in commands by names, so that all machines have the same.

    Args:
        commands: full command lines.
        folders: folders by name, e.g. {"source": Path("/home/me/project")}. If one is inside
            another, the inner one counts.
    """
    names = {str(path): name for name, path in sorted(folders.items(), reverse=True)}
    if not names:
        return tuple(tuple(command) for command in commands)
    # A folder starts a word or a value (after -I, -ffile-prefix-map=, :).
    alternatives = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?:^|(?<=[=:,])|(?<=^-[A-Za-z]))({alternatives})(?=[/=:,]|\Z)")
    # Command lines have no NUL, so a name cannot be confused with their text.
    return tuple(
        tuple(pattern.sub(lambda found: f"\0{names[found[1]]}\0", word) for word in command)
        for command in commands
    )


def _flavour(extension: Extension, target: Target) -> Flavour:
    if extension.ordinary:
        return ordinary(target, extension.module)
    if target.part == "kernels":
        return kernels(target)
    if target.part == "entry_points":
        return entry_points(target)
    whole = stable(target) if target.abi == "stable" else aten(target, extension.module)
    return front_end(target, whole) if target.part else whole


def _stub_step(soname: str, target: Target) -> Step:
    """An empty library with a soname of torch's, to link against: torch itself is not needed."""
    output = f"stub/{soname}"
    command = (target.cxx, "-shared", "-nostdlib", f"-Wl,-soname,{soname}")
    return Step(f"stub {soname}", (*command, "-x", "c", "/dev/null", "-o", output), (), output)
