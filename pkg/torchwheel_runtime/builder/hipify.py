"""Translates the CUDA sources of an ordinary extension for ROCm, with torch's hipify."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.builder.sources import DeviceFile, Sources
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, path_inside
from torchwheel_runtime.json_files import last_line, parse_json

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
        return _translated(aside.resolve(), files, include_dirs, python)


def _headers(source: Path) -> Iterator[str]:
    """Every header of the project, but for what lies in hidden folders."""
    for root, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.endswith(_HEADERS):
                yield str((Path(root) / name).relative_to(source))


def _translated(
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
    device = [file.path for file in sources.device]
    became = hipify(
        target.source,
        [*device, *sources.host, *sources.binding],
        folder,
        python=Path(sys.executable),
        include_dirs=extension.include_dirs,
    )
    for library in sources.libraries:
        (folder / library).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target.source / library, folder / library)
    return (
        Sources(
            device=[DeviceFile(became[file.path], file.archs) for file in sources.device],
            host=[became[path] for path in sources.host],
            binding=[became[path] for path in sources.binding],
            libraries=sources.libraries,
        ),
        dataclasses.replace(target, source=folder),
    )
