"""The files of a build: globs resolved, operators that have no kernel for the target left out.

The CUDA sources of an ordinary extension are translated for ROCm, with torch's hipify.
"""

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.arch.model import Arch
from torchwheel_runtime.builder.extension import Extension, Operator
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.builder.variables import operator_variable
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, path_inside
from torchwheel_runtime.json_files import last_line, parse_json


@dataclasses.dataclass(frozen=True)
class Sources:
    """A library's files, relative to the source folder.

    Attributes:
        device: the files of device code, and the archs that each is compiled for.
        host: torch-free host code.
        binding: code that meets torch.
        python: code that meets Python.
        included: code that is compiled as one unit with each file of `binding`, before it.
        interface: the headers that kernel libraries and front ends share; empty for a library that
            is both.
        libraries: libraries that the extension brings along.
    """

    device: Mapping[str, tuple[Arch, ...]]
    host: Sequence[str]
    binding: Sequence[str]
    python: Sequence[str] = ()
    included: Sequence[str] = ()
    interface: Sequence[str] = ()
    libraries: Sequence[str] = ()


def sources_of(extension: Extension, target: Target, only: str | None = None) -> Sources:
    """The files of the whole extension, or of the operator named `only`, for `target`.

    Raises:
        UsageError: a glob names no file, there is no binding for the flavour, or no kernel for any
            of the target's archs.
    """
    _require_whole(extension, target)
    operators = [
        operator
        for operator in extension.operators
        if only in (None, operator.name)
        and operator.name not in target.operators_off
        and archs_of(operator, target)
    ]
    if not operators:
        if only in target.operators_off or len(target.operators_off) == len(extension.operators):
            name = only or extension.operators[0].name
            raise UsageError(
                f"{only or extension.package}: expected an operator to build, found it switched "
                f"off; set {operator_variable(extension, name)}=1"
            )
        archs = " ".join(map(str, target.toolkit.archs))
        raise UsageError(f"{only or extension.package}: has no kernels for {archs}")
    libraries = _own_libraries(extension, target)
    if target.part is not None:
        sources = _part_sources(extension, operators, target)
        return dataclasses.replace(sources, libraries=libraries)
    folder, module = target.source, extension.module
    if target.python and not extension.ordinary:
        if module is None or not module.binding:
            raise UsageError(f"{extension.package}: has no extension module for the aten flavour")
        binding, python = _files(folder, (module.binding,)), _files(folder, module.python)
        own = (glob for one in operators for glob in one.bindings.get(target.abi, ()))
        included = _files(folder, own)
    else:
        binding, python, included = [], [], []
        for operator in operators:
            binding += _files(folder, _binding(operator, target.abi))
    return Sources(
        device=_device(operators, target),
        host=_once(
            _files(folder, (*extension.host, *(glob for one in operators for glob in one.host)))
        ),
        binding=_once(binding),
        python=python,
        included=_once(included),
        libraries=libraries,
    )


def _require_whole(extension: Extension, target: Target) -> None:
    """Refuse to leave operators out of a library whose sources name all of them."""
    module = target.python is not None and not extension.ordinary
    if target.operators_off and (module or target.part == "entry_points"):
        off = ", ".join(sorted(target.operators_off))
        raise UsageError(
            f"{target.name}: expected every operator, because its extension module names them, "
            f"found {off} switched off; build the stable flavour"
        )


def _own_libraries(extension: Extension, target: Target) -> list[str]:
    """The libraries that the extension's flags name and its own folders have."""
    flags = extension.flags_for(target.toolkit.release, target.probes)
    for folder in flags.library_dirs:
        if not (target.source / folder).is_dir():
            raise UsageError(
                f"{target.source / folder}: expected a folder of libraries, found none; correct "
                "Flags.library_dirs"
            )
    files = (
        f"{folder}/lib{name}{suffix}"
        for folder in flags.library_dirs
        for name in flags.libraries
        for suffix in (".a", ".so")
    )
    return [file for file in files if (target.source / file).is_file()]


def _part_sources(extension: Extension, operators: Sequence[Operator], target: Target) -> Sources:
    """The files of one part of a universal wheel."""
    split, folder = extension.split, target.source
    if split is None:
        raise UsageError(f"{extension.package}: its Extension has no `split`, so it has no parts")
    interface = _files(folder, split.interface)
    if target.part == "kernels":
        host = _files(folder, split.kernels)
        return Sources(_device(operators, target), host, (), interface=interface)
    globs = (*extension.host, *(glob for one in operators for glob in one.host))
    host = _once(_files(folder, (glob for glob in globs if glob not in split.kernels)))
    if target.part == "entry_points":
        python = _files(folder, split.entry_points)
        return Sources({}, host, (), python, interface=interface)
    binding = _once(file for one in operators for file in _files(folder, _binding(one, target.abi)))
    # Headers of torch's C++ API take seconds to read, those of the stable ABI less than one.
    last = len(binding) - 1 if target.abi == "aten" else 0
    return Sources({}, host, binding[last:], (), binding[:last], interface)


def _binding(operator: Operator, abi: str) -> tuple[str, ...]:
    if abi not in operator.bindings:
        raise UsageError(f"{operator.name}: has no binding for the {abi} flavour")
    return operator.bindings[abi]


def _device(operators: Sequence[Operator], target: Target) -> dict[str, tuple[Arch, ...]]:
    """Each file once, for the archs of every operator that names it."""
    wanted: dict[str, set[Arch]] = {}
    for operator in operators:
        for path in _files(target.source, operator.device):
            wanted.setdefault(path, set()).update(archs_of(operator, target))
    return {
        path: tuple(arch for arch in target.toolkit.archs if arch in archs)
        for path, archs in wanted.items()
    }


def archs_of(operator: Operator, target: Target) -> tuple[Arch, ...]:
    """The target's archs that the operator has kernels for."""
    return tuple(arch for arch in target.toolkit.archs if operator.archs.takes(arch))


def _files(folder: Path, globs: Iterable[str]) -> list[str]:
    """Files below `folder` that the globs name, sorted; a glob that names none is a mistake."""
    found: list[str] = []
    for pattern in globs:
        files = sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))
        if not files:
            raise UsageError(f"{folder}: no file matches {pattern!r}")
        found += files
    return found


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


_CHILD = Path(__file__).with_name("hipify_child.py")
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl")


def hipify(
    source: Path,
    files: Sequence[str],
    output: Path,
    *,
    python: Path,
    include_dirs: Sequence[str] = (),
) -> Mapping[str, str]:
    """Translate sources into `output`, whole or not at all; the source tree stays as it is.

    The project's headers go with the files. Those that a file includes are translated too, and the
    file then includes the translation.

    Args:
        source: the project's folder.
        files: sources, relative to it, e.g. "csrc/scale.cu".
        output: the folder for the translation; what is there is replaced.
        python: an interpreter that has torch.
        include_dirs: folders for -I, relative to `source`.

    Returns:
        Each file, and each header it includes, to the translation's path relative to `output`; a
        header without a CUDA name keeps its own.

    Raises:
        UsageError: a file is not there or not in `source`.
        TorchwheelError: `python` has no torch, or hipify cannot read a file.
    """
    for file in files:
        if not path_inside(source, file, str(source)).is_file():
            raise UsageError(f"{source / file}: not found; a source to translate expected")
    source = source.resolve()
    with make_folder_atomically(output) as aside:
        for path in {*files, *_headers(source)}:
            target = path_inside(aside, path, str(source))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, target)
        return _run_hipify(aside.resolve(), files, include_dirs, python)


def _headers(source: Path) -> Iterator[str]:
    """Every header of the project, but for what lies in hidden folders."""
    for root, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.endswith(_HEADERS):
                yield str((Path(root) / name).relative_to(source))


def _run_hipify(
    folder: Path, files: Sequence[str], include_dirs: Sequence[str], python: Path
) -> Mapping[str, str]:
    command = [str(python), "-c", _CHILD.read_text(encoding="utf-8"), str(folder)]
    done = process.run([*command, *include_dirs, "--", *files], cwd=folder)
    done.require(f"hipify, which is part of torch, failed in {python}")
    translated = parse_json(last_line(done.output), dict[str, str], "hipify's answer")
    if missing := [file for file in files if file not in translated]:
        raise TorchwheelError(f"hipify, which is part of torch, translated no {missing[0]}")
    return translated


def hipify_sources(
    extension: Extension, sources: Sources, target: Target, folder: Path
) -> tuple[Sources, Target]:
    """What is compiled in place of `sources`: a translation in `folder`, or they themselves.

    Others' sources are written for CUDA; ours know both platforms. The running Python has a torch:
    hipify is a part of it.
    """
    if not extension.ordinary or target.toolkit.backend != "rocm":
        return sources, target
    became = hipify(
        target.source,
        [*sources.device, *sources.host, *sources.binding],
        folder,
        python=Path(sys.executable),
        include_dirs=extension.include_dirs,
    )
    for library in sources.libraries:
        (folder / library).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target.source / library, folder / library)
    return (
        Sources(
            device={became[path]: archs for path, archs in sources.device.items()},
            host=[became[path] for path in sources.host],
            binding=[became[path] for path in sources.binding],
            libraries=sources.libraries,
        ),
        dataclasses.replace(target, source=folder),
    )
