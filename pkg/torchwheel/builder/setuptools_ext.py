"""Hands the plan to setuptools: a library that torch loads, in a py3-none wheel."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

from torchwheel.builder import environment, ninja
from torchwheel.builder.cuda import stable_plan
from torchwheel.builder.jobs import parallel_jobs
from torchwheel.builder.library import NativeLibrary
from torchwheel.builder.plan import Plan, Target
from torchwheel.errors import TorchwheelError, UsageError


def _sources(folder: Path, globs: Sequence[str]) -> list[str]:
    """Files below `folder` that the globs name, sorted; a glob that names none is a mistake."""
    found: list[str] = []
    for pattern in globs:
        files = sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))
        if not files:
            raise UsageError(f"{folder}: no file matches {pattern!r}")
        found += files
    return found


def make_plan(library: NativeLibrary, target: Target) -> Plan:
    """The plan of `library` for `target`, its globs resolved."""
    if target.abi not in library.bindings:
        raise UsageError(f"{library.package}: no binding for the {target.abi} ABI")
    return stable_plan(
        library,
        device=_sources(target.source, library.device),
        host=_sources(target.source, library.host),
        binding=_sources(target.source, library.bindings[target.abi]),
        target=target,
    )


def setup_arguments(library: NativeLibrary, source: Path) -> dict[str, Any]:
    """Keyword arguments for `setuptools.setup`: none for the pure-Python package."""
    try:
        target = environment.target(os.environ, source)
    except TorchwheelError as error:
        raise SystemExit(f"error: {error}") from error
    return _arguments(library, target) if target else {}


def _arguments(library: NativeLibrary, target: Target) -> dict[str, Any]:
    class BuildLibrary(build_ext):
        """Runs the plan in a folder that outlives the build: only what changed is compiled."""

        def get_ext_filename(self, fullname: str) -> str:
            return f"{fullname.replace('.', os.sep)}.so"

        def build_extension(self, ext: Extension) -> None:
            named = os.environ.get(environment.BUILD_FOLDER)
            folder = Path(named or self.build_temp).resolve()
            try:
                built = ninja.run(
                    make_plan(library, target), folder, parallel_jobs(), ninja.say_to_stdout
                )
            except TorchwheelError as error:
                raise SystemExit(f"error: {error}") from error
            output = Path(self.get_ext_fullpath(ext.name))
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, output)

    class AnyPython(bdist_wheel):
        """The library imports nothing of CPython, so one wheel serves every version of it."""

        def get_tag(self) -> tuple[str, str, str]:
            return "py3", "none", super().get_tag()[2]

    # A dot would start a subpackage: "rocm6.4-stable".
    name = target.name.replace(".", "_")
    return {
        "ext_modules": [Extension(f"{library.package}.{name}", sources=[])],
        "cmdclass": {"build_ext": BuildLibrary, "bdist_wheel": AnyPython},
    }
