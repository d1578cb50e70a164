"""Hands the build to setuptools: a library for every Python, or an extension module for one."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

from torchwheel.builder import environment
from torchwheel.builder.build import build
from torchwheel.builder.jobs import parallel_jobs
from torchwheel.builder.library import NativeLibrary
from torchwheel.builder.ninja import say_to_stdout
from torchwheel.builder.objects import Sources
from torchwheel.builder.recipe import Recipe, make_recipe
from torchwheel.builder.target import Target
from torchwheel.errors import TorchwheelError, UsageError


def _files(folder: Path, globs: Sequence[str]) -> list[str]:
    """Files below `folder` that the globs name, sorted; a glob that names none is a mistake."""
    found: list[str] = []
    for pattern in globs:
        files = sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))
        if not files:
            raise UsageError(f"{folder}: no file matches {pattern!r}")
        found += files
    return found


def recipe_of(library: NativeLibrary, target: Target) -> Recipe:
    """The recipe of `library` for `target`, its globs resolved."""
    if target.abi not in library.bindings:
        raise UsageError(f"{library.package}: no binding for the {target.abi} ABI")
    sources = Sources(
        device=_files(target.source, library.device),
        host=_files(target.source, library.host),
        binding=_files(target.source, library.bindings[target.abi]),
        python=_files(target.source, library.python) if target.python else (),
    )
    return make_recipe(library, sources, target)


def setup_arguments(library: NativeLibrary, source: Path) -> dict[str, Any]:
    """Keyword arguments for `setuptools.setup`: none for the pure-Python package."""
    try:
        target = environment.target(os.environ, source)
    except TorchwheelError as error:
        raise SystemExit(f"error: {error}") from error
    return _arguments(library, target) if target else {}


def _arguments(library: NativeLibrary, target: Target) -> dict[str, Any]:
    any_python = target.python is None

    class BuildLibrary(build_ext):
        """Builds in a folder that outlives the build: only what changed is compiled."""

        def get_ext_filename(self, fullname: str) -> str:
            suffix = ".so" if target.python is None else target.python.suffix
            return f"{fullname.replace('.', os.sep)}{suffix}"

        def build_extension(self, ext: Extension) -> None:
            shared = os.environ.get(environment.SHARED_FOLDER)
            folder = Path(os.environ.get(environment.BUILD_FOLDER) or self.build_temp)
            try:
                built = build(
                    recipe_of(library, target),
                    folder.resolve(),
                    Path(shared).resolve() if shared else None,
                    parallel_jobs(),
                    say_to_stdout,
                )
            except TorchwheelError as error:
                raise SystemExit(f"error: {error}") from error
            output = Path(self.get_ext_fullpath(ext.name))
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, output)

    class TaggedWheel(bdist_wheel):
        """Names the platform that is built for, and no Python where the library imports none."""

        def initialize_options(self) -> None:
            super().initialize_options()
            self.plat_name = target.platform

        def get_tag(self) -> tuple[str, str, str]:
            python, abi, platform = super().get_tag()
            return ("py3", "none", platform) if any_python else (python, abi, platform)

    # A dot would start a subpackage: "rocm6.4-stable".
    name = f"{library.package}.{target.name.replace('.', '_')}" if any_python else library.module
    return {
        "ext_modules": [Extension(name, sources=[])],
        "cmdclass": {"build_ext": BuildLibrary, "bdist_wheel": TaggedWheel},
    }
