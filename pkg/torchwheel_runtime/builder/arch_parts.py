"""The compile of a CUDA file in parts: the code for each arch, and the host side.

nvcc compiles the archs of a file one after another and puts them into one object. Where several
jobs compile, each takes some of the parts, and the job that links joins them as nvcc would: its
`--dryrun` prints the call of `fatbinary`. The object has the bytes of one that nvcc compiled as a
whole, but for symbols that no linker needs.
"""

import dataclasses
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.arch.model import Arch, CudaArch
from torchwheel_runtime.errors import TorchwheelError

_SECTION = ".nv_fatbin"  # of an object, with the code for all archs
_HOST = ".host.o"
_IMAGE = re.compile(r"--image3=kind=(elf|ptx),sm=(\w+),file=.*")


@dataclasses.dataclass(frozen=True)
class ArchPart:
    """A part of a file's compile.

    Attributes:
        name: names it to a person, e.g. "9.0".
        form: nvcc's option for its output, e.g. "-cubin".
        code: nvcc's option for its arch.
        end: of its output's name, e.g. ".sm_90.cubin".
    """

    name: str
    form: str
    code: str
    end: str


def parts_of(archs: Sequence[Arch]) -> Iterator[ArchPart]:
    """The parts of a file; none for HIP and for one arch.

    The host side's object has the PTX of one arch, in whose place the code for all is put.
    """
    cuda = [arch for arch in archs if isinstance(arch, CudaArch)]
    if len(cuda) < 2:
        return
    for arch in cuda:
        number = arch.number
        virtual = f"-gencode=arch=compute_{number},code="
        yield ArchPart(arch.name, "-cubin", f"{virtual}sm_{number}", _end("elf", number))
        if arch.ptx:
            name = f"{arch.name}, PTX"
            yield ArchPart(name, "-ptx", f"{virtual}compute_{number}", _end("ptx", number))
    first = cuda[0].number
    yield ArchPart("the host", "-c", f"-gencode=arch=compute_{first},code=compute_{first}", _HOST)


def part_output(whole: str, end: str) -> str:
    """The output of a part, e.g. "a.cu.sm_90.cubin" of "a.cu.o"."""
    return f"{whole.removesuffix('.o')}{end}"


def _end(kind: str, number: str) -> str:
    return f".sm_{number}.cubin" if kind == "elf" else f".compute_{number}.ptx"


def join_parts(
    command: Sequence[str], output: str, parts: Mapping[str, Path], objcopy: str, into: Path
) -> Path:
    """The object `output` of its parts, in the folder `into`.

    Args:
        command: nvcc's call for the whole file, without a launcher.
        output: the object's name.
        parts: the files of the parts, by their outputs.
        objcopy: the program of the object's machine.
        into: a folder.
    """
    options, path = _fatbinary_call([*command, "--dryrun"])
    fatbinary = shutil.which("fatbinary", path=path)
    if fatbinary is None:
        raise TorchwheelError(f"{command[0]}: expected `fatbinary` beside it, found none")
    name = Path(output).name
    code, joined = into / f"{name}.fatbin", into / name
    words = [_with_part(option, output, parts) for option in options]
    process.run([fatbinary, *words, f"--create={code}"]).require(f"fatbinary of {output}")
    host = parts[part_output(output, _HOST)]
    copy: list[str | Path] = [objcopy, "--update-section", f"{_SECTION}={code}", host, joined]
    process.run(copy).require(f"objcopy of {output}")
    code.unlink()
    return joined


def _fatbinary_call(command: Sequence[str]) -> tuple[list[str], str]:
    """The options of fatbinary, and the PATH on which nvcc looks for it."""
    done = process.run(command, merge=True)
    done.require("nvcc --dryrun")
    lines = [line.removeprefix("#$ ") for line in done.output.splitlines()]
    path = next((line.partition("=")[2] for line in lines if line.startswith("PATH=")), os.defpath)
    calls = [line for line in lines if line.startswith("fatbinary ")]
    if len(calls) != 1:
        raise TorchwheelError(
            f"nvcc --dryrun: expected one call of fatbinary, found {len(calls)}; compile without "
            "shards"
        )
    # With --threads the call is followed by redirections.
    words = [word for word in shlex.split(calls[0]) if word.startswith("-")]
    return [word for word in words if not word.startswith("--embedded-fatbin=")], path


def _with_part(option: str, output: str, parts: Mapping[str, Path]) -> str:
    """The option of fatbinary with our file in it, if it names an image."""
    image = _IMAGE.fullmatch(option)
    if image is None:
        return option
    kind, number = image.groups()
    part = parts.get(part_output(output, _end(kind, number)))
    if part is None:
        raise TorchwheelError(
            f"nvcc --dryrun: an image of {output}, {kind} for {number}, is no part of its compile; "
            "compile without shards"
        )
    return f"--image3=kind={kind},sm={number},file={part}"
