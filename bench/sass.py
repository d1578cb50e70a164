"""Compares the machine code of the kernels before and after a change of their sources.

    nox -s bench -- sass REVISION [--archs 9.0 8.0]

Compiles the kernels of REVISION and of the working tree with the flags of a wheel, and compares
them by name: instructions, registers, shared memory and constants. Files that are the same after
preprocessing are not compiled. The status is 1 if a kernel differs in more than its name.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from fusedops.extension import EXTENSION
from torchwheel_runtime.arch.model import Arch, parse
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder.ninja import Step
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.builder.sources import Sources
from torchwheel_runtime.builder.target import DeviceCompiler, Target, TorchHeaders
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.inspect.elf_file import elf_of_bytes
from torchwheel_runtime.toolkit.cache import cache_folder
from torchwheel_runtime.toolkit.provision import provision_pypi

ROOT = Path(__file__).resolve().parents[1]
CUBINS, CUDA = ROOT / "build" / "sass", "13.0"
_CODE = re.compile(r"\.(text|nv\.(?:constant\d+|shared|global\.init))(?:\.(?!reserved)(.+))?")

Code = collections.Counter[tuple[str, str]]
"""Kernels: their names, and digests of their code. The constants of a file count as one."""


def code_of(cubin: bytes, file: str) -> Code:
    """The kernels of a cubin, by their mangled names. The upper byte of `info` counts registers."""
    elf = elf_of_bytes(cubin)
    parts: dict[str, list[str]] = collections.defaultdict(list)
    for name, header in sorted(elf.sections.items()):
        if found := _CODE.fullmatch(name):
            owner = found[2] or f"constants of {file}"
            digest = hashlib.sha256(elf.section(name, header.size) or b"").hexdigest()
            parts[owner].append(f"{found[1]} {header.info >> 24} {header.size} {digest}")
    return Code((name, "\n".join(lines)) for name, lines in parts.items())


def differences(before: Code, after: Code) -> tuple[list[str], list[str]]:
    """Lines for the kernels that differ, and for those that differ in their names alone."""
    gone, new = before - after, after - before
    both = {name for name, _ in gone} & {name for name, _ in new}
    different = [f"differs: {name}" for name in sorted(both)]
    free = collections.defaultdict(list)
    for name, digest in sorted(one for one in new.elements() if one[0] not in both):
        free[digest].append(name)
    renamed = []
    for name, digest in sorted(one for one in gone.elements() if one[0] not in both):
        if free[digest]:
            renamed.append(f"renamed: {name}\n     to: {free[digest].pop(0)}")
        else:
            different.append(f"gone: {name}")
    return different + [f"new: {name}" for names in free.values() for name in names], renamed


def demangle(code: Code) -> Code:
    """The code by readable names, in which anonymous namespaces have no hash."""
    names = _run(["c++filt"], "\n".join(name for name, _ in code.elements()).encode())
    digests = (digest for _, digest in code.elements())
    return Code(zip(names.decode().splitlines(), digests, strict=True))


def steps_of(tree: Path, arch: Arch, toolkit: Path) -> Sequence[Step]:
    """The compile steps of a tree's kernels for an arch."""
    source = tree / EXTENSION.sources
    files = (str(path.relative_to(source)) for path in sorted(source.glob("kernels/*.cu")))
    nvcc = DeviceCompiler(ToolkitRelease("cuda", CUDA), toolkit, (arch,), toolkit / "lib")
    host = (TorchHeaders(toolkit, ""), "linux_x86_64", False, "g++")
    target = Target("sass", "stable", source, nvcc, *host, part="kernels")
    sources = Sources(dict.fromkeys(files, (arch,)), (), ())
    return Recipe(EXTENSION, sources, target).groups["device"]


def preprocess(step: Step, arch: Arch) -> str:
    """A digest of what the compiler is given, without the names of files."""
    macro = f"-D__CUDA_ARCH__={arch.binary_name.strip('sm_af')}0"
    text = _run([*_compiler(step), macro, "-E", step.inputs[0]])
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith(b"# "))
    return hashlib.sha256(b"\n".join((arch.binary_name.encode(), *lines))).hexdigest()


def compile_file(step: Step, digest: str) -> Code:
    """The code of a file, which is compiled unless an earlier call did it."""
    CUBINS.mkdir(parents=True, exist_ok=True)
    cubin, partial = CUBINS / f"{digest}.cubin", CUBINS / f"{digest}.partial"
    if not cubin.is_file():
        _run([*_compiler(step), "-cubin", step.inputs[0], "-o", str(partial)])
        partial.rename(cubin)
    return code_of(cubin.read_bytes(), Path(step.inputs[0]).name)


def _compiler(step: Step) -> Sequence[str]:
    return step.command[: step.command.index("-MD")]


def _run(command: Sequence[str], given: bytes = b"") -> bytes:
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, check=False)
    return done.stdout if done.returncode == 0 else sys.exit(f"{command[0]}: failed, see above")


def compare(old: Path, arch: Arch, toolkit: Path) -> int:
    """Print what differs between a tree and this one for an arch; how many kernels do."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def files_of(tree: Path) -> Mapping[str, Step]:
            steps = steps_of(tree, arch, toolkit)
            return dict(zip(pool.map(preprocess, steps, [arch] * len(steps)), steps, strict=True))

        def code(files: Mapping[str, Step], others: Set[str]) -> Code:
            changed = {digest: step for digest, step in files.items() if digest not in others}
            return demangle(sum(pool.map(compile_file, changed.values(), changed), Code()))

        before, after = files_of(old), files_of(ROOT)
        new = code(after, before.keys())
        different, renamed = differences(code(before, after.keys()), new)
    counts = f"{len(different)} of {new.total()} kernels differ, {len(renamed)} are renamed"
    print(*different, *renamed, f"{arch.binary_name}: {counts}", sep="\n")
    return len(different)


def main() -> int:
    """Compare the trees for every arch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="e.g. HEAD")
    parser.add_argument("--archs", nargs="+", type=parse, default=[parse("9.0")])
    options = parser.parse_args()
    with Terminal().live_line() as progress, tempfile.TemporaryDirectory(prefix="sass-") as folder:
        toolkit, _ = provision_pypi(CUDA, "linux_x86_64", cache_folder(), progress)
        archive = ["git", "-C", str(ROOT), "archive", options.revision, EXTENSION.sources]
        _run(["tar", "-x", "-C", folder], _run(archive))
        return int(sum(compare(Path(folder), arch, toolkit) for arch in options.archs) > 0)


if __name__ == "__main__":
    sys.exit(main())
