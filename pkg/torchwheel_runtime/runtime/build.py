"""Obtains an operator's library for this machine: from the cache, else by a build.

The first call of an operator on a GPU uses this; an import does not.
"""

import dataclasses
import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel_runtime.builder.extension import SOURCES, Extension
from torchwheel_runtime.builder.ninja import build, find_ninja, parallel_jobs
from torchwheel_runtime.builder.recipe import (
    Recipe,
    folders_of,
    make_recipe,
    own_sources_digest,
    strip_folders,
)
from torchwheel_runtime.builder.sources import hipify_sources, sources_of
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.jit.key import BuildFacts
from torchwheel_runtime.jit.lookup import jit_folder
from torchwheel_runtime.jit.make import LibraryRequest, WorkFolder, make_library, read_sources
from torchwheel_runtime.loadable import LoadableFile
from torchwheel_runtime.runtime.local_target import LocalTarget, find_local_target
from torchwheel_runtime.runtime.status import LoadStep

if TYPE_CHECKING:
    from torchwheel_runtime.arch.devices import Gpu

_HEADERS = {".h", ".hh", ".hpp", ".hxx", ".cuh", ".hip", ".inc", ".inl", ".ipp", ".tcc"}


def obtain_library(
    extension: Extension,
    package: Path,
    name: str | None,
    environ: Mapping[str, str] = os.environ,
    *,
    kernels_for: "Gpu | None" = None,
) -> tuple[LoadableFile, LoadStep]:
    """The library of an operator, or the module of an ordinary extension, for this machine.

    Args:
        extension: the extension.
        package: the folder of its package.
        name: the operator; None for all of an ordinary extension.
        environ: names toolkits and compilers, and may name an arch list.
        kernels_for: a GPU, for which the operator's kernel library is built: a part that knows
            neither torch nor Python, for a front end.

    Returns:
        The verified library, open, and whether it was cached or built.

    Raises:
        TorchwheelError: something is missing or does not fit; the message says what to do.
    """
    with Terminal().live_line() as progress:
        source = source_folder(extension, package)
        local = find_local_target(extension, name, source, environ, progress, kernels_for)
        step: LoadStep = "jit cache"
        # A terminal shows each file while it compiles; a log does not list them.
        say = progress.step if progress.is_live else _ignore_line
        say = progress.say if extension.verbose else say

        def compile_(work: WorkFolder) -> Path:
            nonlocal step
            step = "jit build"
            find_ninja()
            target = dataclasses.replace(local.target, source=work.source)
            sources = sources_of(extension, target, name)
            sources, target = hipify_sources(extension, sources, target, work.folder / "translated")
            recipe = make_recipe(extension, sources, target)
            return build(recipe, work.folder, None, parallel_jobs(environ), say)

        try:
            folder = jit_folder()
        except TorchwheelError as error:
            progress.say(f"{error}; what is built is for this process alone")
            folder = private_folder()
        request = _library_request(extension, name, local)
        return make_library(folder, request, compile_, progress), step


def _ignore_line(line: str) -> None:
    del line


def source_folder(extension: Extension, package: Path) -> Path:
    """The folder of the extension's sources, in the installed package or its source tree."""
    installed = package / SOURCES
    trees = (parent for parent in package.parents[:3] if (parent / "pyproject.toml").is_file())
    for folder in (installed, *(tree / extension.sources for tree in trees)):
        if folder.is_dir():
            return folder
    raise UsageError(f"{installed}: not there, so there is nothing to build from")


def _source_files(recipe: Recipe, source: Path) -> list[str]:
    """The extension's files that the recipe compiles or links, and every header."""
    compiled = {
        Path(file) for steps in recipe.groups.values() for step in steps for file in step.inputs
    } | {Path(library) for library in recipe.libraries}
    # A command names the digest of torchwheel's own file.
    own = {path for path in compiled if path.is_relative_to(source)}
    headers = {path for path in source.rglob("*") if path.suffix in _HEADERS}
    return sorted(str(path.relative_to(source)) for path in own | headers)


def _library_request(extension: Extension, name: str | None, local: LocalTarget) -> LibraryRequest:
    """The request for a library: everything that decides its bytes."""
    target = local.target
    recipe = make_recipe(extension, sources_of(extension, target, name), target)
    folders = {**folders_of(target), "cxx": Path(target.cxx)}
    return LibraryRequest(
        BuildFacts(
            name=f"{extension.package}.{name}" if name else extension.package,
            archs=tuple(map(str, target.toolkit.archs)),
            toolkit=local.compilers,
            torch="any" if target.part else f"{local.torch} {target.abi}",
            commands=strip_folders((step.command for step in recipe.whole().steps), folders),
            own_sources=own_sources_digest(),
        ),
        read_sources(target.source, map(glob.escape, _source_files(recipe, target.source))),
    )
