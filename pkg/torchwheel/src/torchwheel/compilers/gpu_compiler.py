"""A compiler that holds the archs of a build, and the C++ standard of torch's headers.

`python gpu_compiler.py ARCHS BY STANDARD PROGRAM… -- ARGUMENTS…`: ARCHS is an arch list
("8.0;9.0+PTX", "gfx90a;gfx1100"), BY is `archs_by` of matrix.yaml, STANDARD is e.g. 20, PROGRAM…
the compiler with its launcher. A setup.py that names archs itself is stopped at its first file, not
after hours by a gate. One that names an older standard than torch's headers need (-std=c++17) has
it raised in the calls that include them: torch leaves a standard that is named as it is. Where a
build is only planned, any compiler is held so, and makes empty objects of the project's files: some
are compiled without the ninja that lists the steps. Standard library only: it runs for every file,
in any Python.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_OPTIONS = ("-gencode", "--generate-code")
_CODE_OPTIONS = ("-code", "--gpu-code", "--offload-arch", "--amdgpu-target")
_ARCH_OPTIONS = ("-arch", "--gpu-architecture")
_OF_AMD = "gfx"
_COMPILES = ("-c", "--compile", "-dc", "--device-c", "-dw", "--device-w")
FAILED = 1
PLANNED = "TORCHWHEEL_PLANNED"
"""Names the folder of a project whose build is only planned."""
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".C")
_STANDARD = re.compile(r"((?:.*[-,]std=)?(?:c|gnu)\+\+)([0-9][0-9]|0x|1y|1z|2a|2b|2c)")
_YEARS = {"98": 3, "0x": 11, "1y": 14, "1z": 17, "2a": 20, "2b": 23, "2c": 26}
_TORCH = "/torch/include"
_LISTS = ("--options-file", "-optf")
# Where CMake and Meson try compilers.
_TRIALS = re.compile(r"/(CMakeFiles|meson-private)/")


def guard(python: str, archs: str, by: str, standard: int, compiler: Sequence[str]) -> "list[str]":
    """The command that runs `compiler` through this file; its arguments follow."""
    return [python, "-S", "-E", __file__, archs, by, str(standard), *compiler, "--"]


def split(arguments: Sequence[str]) -> "tuple[list[str], list[str]]":
    """The options that name archs, and the other arguments."""
    named: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name in (*_OPTIONS, *_CODE_OPTIONS, *_ARCH_OPTIONS):
            named += [argument] if equals else [argument, next(rest, "")]
        else:
            others.append(argument)
    return named, others


def codes_in(named: Sequence[str]) -> "set[str]":
    """What the options ask for: "sm_80" and "gfx90a" are machine code, "compute_90" is PTX."""
    archs: set[str] = set()
    codes: set[str] = set()
    rest = iter(named)
    for option in rest:
        name, equals, value = option.partition("=")
        value = value if equals else next(rest, "")
        if name in _OPTIONS:
            # arch=compute_80,code=[sm_80,compute_80]: the arch is no code of the result.
            value = value.partition("code=")[2]
        found = codes if name in (*_OPTIONS, *_CODE_OPTIONS) else archs
        found |= {word for word in re.split(r"[\s\"'\[\],]+", value) if word}
    # -arch=sm_80 alone makes machine code, and PTX too.
    return codes or archs | {word.replace("sm_", "compute_") for word in archs}


def codes_of(archs: str) -> "set[str]":
    """The codes of an arch list."""
    return set(_codes(archs))


def _codes(archs: str) -> Iterator[str]:
    """The codes of an arch list, in its order."""
    for arch in archs.split(";"):
        number = arch.removesuffix("+PTX").replace(".", "")
        yield arch if arch.startswith(_OF_AMD) else f"sm_{number}"
        if arch.endswith("+PTX"):
            yield f"compute_{number}"


def options_of(archs: str) -> Iterator[str]:
    """The compiler's options for an arch list."""
    for code in _codes(archs):
        if code.startswith(_OF_AMD):
            yield f"--offload-arch={code}"
        else:
            yield f"-gencode=arch=compute_{code.partition('_')[2]},code={code}"


def arch_list_of(codes: "set[str]") -> str:
    """The codes as an arch list: "8.0;9.0+PTX"; a word that is no arch stays as it is."""
    by_number: dict[str, set[str]] = {}
    for code in codes:
        kind, _, number = code.partition("_")
        by_number.setdefault(number or kind, set()).add(kind)
    return ";".join(
        re.sub(r"^([0-9]+)([0-9])", r"\1.\2", number) + ("+PTX" if "compute" in kinds else "")
        for number, kinds in sorted(by_number.items(), key=lambda item: _order(item[0]))
    )


def _order(number: str) -> "tuple[int, str]":
    digits = re.match("[0-9]*", number)
    return int((digits and digits[0]) or 0), number


def fault_of(codes: "set[str]", archs: str, by: str) -> "str | None":
    """Why these codes are not what is built, and what to do; None if they are."""
    wanted, found = codes_of(archs), arch_list_of(codes)
    if by == "declared":
        if more := codes - wanted:
            return (
                f"the project compiles for {arch_list_of(more)}, which the arch list {archs} "
                f'lacks; add them to the archs of the toolkit, or pass --archs "{found}"'
            )
        return None
    if codes == wanted:
        return None
    variable = "PYTORCH_ROCM_ARCH" if archs.startswith(_OF_AMD) else "TORCH_CUDA_ARCH_LIST"
    return (
        f"the project hard-codes the archs {found}; expected those of {variable}, "
        f'{archs}; pass --archs "{found}", or replace them: build.archs_by: replaced in '
        "matrix.yaml, --archs-by replaced of torchwheel build"
    )


def raise_standard(call: Sequence[str], standard: int) -> "list[str]":
    """The call, with at least this C++ standard where it includes torch's headers."""

    def at_least(word: str) -> str:
        found = _STANDARD.fullmatch(word)
        if found is None:
            return word
        year = _YEARS.get(found[2]) or int(found[2])
        return f"{found[1]}{standard}" if year < standard else word

    return [at_least(word) for word in call] if _includes_torch(call) else list(call)


def _includes_torch(call: Sequence[str]) -> bool:
    """Whether a call looks for headers in torch's folder, also by a list of CMake's."""
    if any(_TORCH in word for word in call):
        return True
    lists = [call[at + 1] for at, word in enumerate(call[:-1]) if word in _LISTS]
    lists += [word.lstrip("@") for word in call if word.startswith("@")]
    for path in lists:
        try:
            if _TORCH in Path(path).read_text(encoding="utf-8", errors="replace"):
                return True
        except OSError:
            continue  # the compiler says what is wrong with it
    return False


def file_alone(call: Sequence[str], project: str) -> "str | None":
    """The file of a project that a call compiles."""
    own = os.path.realpath(project) + os.sep
    for word in call:
        path = os.path.realpath(word)
        is_source = word.endswith(_SOURCES) and not word.startswith("-")
        if is_source and path.startswith(own) and not _TRIALS.search(path):
            return word
    return None


def empty_object(call: Sequence[str], file: str) -> "list[str]":
    """The arguments that make an object without any code in place of a file's."""
    named = [call[at + 1] for at, word in enumerate(call[:-1]) if word == "-o"]
    usual = file.rpartition("/")[2].rpartition(".")[0] + ".o"
    return ["-x", "c", "-c", os.devnull, "-o", *(named or [usual])[:1]]


def main(arguments: Sequence[str]) -> None:
    """Check the archs of a call, raise its C++ standard, then become the compiler."""
    archs, by, standard, *rest = arguments
    end = rest.index("--")
    program, call = rest[:end], raise_standard(rest[end + 1 :], int(standard))
    named, others = split(call)
    compiles = any(word in _COMPILES for word in call)
    project = os.environ.get(PLANNED)
    if project and compiles and (file := file_alone(call, project)):
        call = empty_object(call, file)
    elif named and by == "replaced":
        # A link of device code makes machine code, too.
        call = [*others, *options_of(archs)]
    elif named and compiles and (fault := fault_of(codes_in(named), archs, by)):
        print(f"torchwheel: {fault}", file=sys.stderr)
        sys.exit(FAILED)
    os.execvp(program[0], [*program, *call])  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main(sys.argv[1:])
