"""Hands the build to setuptools: a library for every Python, or an extension module for one."""

import os
import runpy
import shutil
from pathlib import Path
from typing import Any

from setuptools import Extension as ExtensionModule
from setuptools import find_packages
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

from torchwheel.builder import environment
from torchwheel.builder.extension import LIBRARIES, SOURCES, Extension
from torchwheel.builder.hipify import hipify_sources
from torchwheel.builder.sources import sources_of
from torchwheel.builder.target import Target
from torchwheel.errors import TorchwheelError

NATIVE_REQUIREMENTS = ("ninja>=1.11", "psutil>=6", "pybind11>=2.13")
"""What a native build needs beside setuptools; the pure wheel can be built without them."""


def setup_arguments(project: Path, packages: str, description: str) -> dict[str, Any]:
    """Keyword arguments for `setuptools.setup`.

    Every wheel has the sources, so that it can be built at first use where no prebuilt library
    serves; a native wheel has a library too.

    Args:
        project: the folder of setup.py.
        packages: the folder of its Python packages, e.g. "pkg".
        description: the file that says what the extension is, e.g. "pkg/fusedops/extension.py"; it
            defines EXTENSION and imports torchwheel.builder alone.
    """
    try:
        extension: Extension = runpy.run_path(str(project / description))["EXTENSION"]
        target = environment.read_target(os.environ, project / extension.sources)
        if target:
            environment.require_stable_floor(extension, target)
        return {
            **_with_sources(extension, project, packages),
            **(_native(extension, target) if target else {}),
        }
    except TorchwheelError as error:
        raise SystemExit(f"error: {error}") from error


def _with_sources(extension: Extension, project: Path, packages: str) -> dict[str, Any]:
    """The source folder as a part of the package."""
    top, root = f"{extension.package}.{SOURCES}", project / extension.sources
    # setuptools wants every folder of data named as a package.
    folders = [path.relative_to(root).parts for path in root.rglob("*") if path.is_dir()]
    inside = sorted([top, *(".".join((top, *parts)) for parts in folders)])
    own = find_packages(
        str(project / packages), include=[extension.package, f"{extension.package}.*"]
    )
    return {
        "packages": [*own, *inside],
        "package_dir": {"": packages, top: extension.sources},
        "package_data": {extension.package: ["py.typed"], **{name: ["*"] for name in inside}},
    }


def _native(extension: Extension, target: Target) -> dict[str, Any]:
    any_python = target.python is None

    class BuildLibrary(build_ext):
        """Builds in a folder that outlives the build: only what changed is compiled."""

        def get_ext_filename(self, fullname: str) -> str:
            suffix = ".so" if target.python is None else target.python.suffix
            if target.part == "entry_points":
                suffix = ".abi3.so"
            return f"{fullname.replace('.', os.sep)}{suffix}"

        def build_extension(self, ext: ExtensionModule) -> None:
            from torchwheel.builder.build import build, parallel_jobs  # noqa: PLC0415 - need ninja
            from torchwheel.builder.ninja import say_to_stdout  # noqa: PLC0415
            from torchwheel.builder.recipe import make_recipe  # noqa: PLC0415

            shared = os.environ.get(environment.SHARED_FOLDER)
            folder = Path(os.environ.get(environment.BUILD_FOLDER) or self.build_temp)
            try:
                sources = sources_of(extension, target)
                translation = folder.resolve() / "translated"
                built = build(
                    make_recipe(
                        extension, *hipify_sources(extension, sources, target, translation)
                    ),
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
    folder = ".".join((extension.package, LIBRARIES, *([target.part] if target.part else [])))
    name = f"{folder}.{target.name.replace('.', '_')}"
    if extension.module and not any_python:
        name = extension.module.name
    return {
        "ext_modules": [ExtensionModule(name, sources=[])],
        "cmdclass": {"build_ext": BuildLibrary, "bdist_wheel": TaggedWheel},
        # A front end (pip, build) asks for them before it builds.
        "setup_requires": list(NATIVE_REQUIREMENTS),
    }
