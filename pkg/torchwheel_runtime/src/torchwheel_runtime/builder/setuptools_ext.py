"""Hands the build to setuptools: a library for every Python, or an extension module for one."""

import dataclasses
import json
import os
import runpy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools import Extension as ExtensionModule
from setuptools import find_packages
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.extension import LIBRARIES, OBJECTS, SOURCES, Extension
from torchwheel_runtime.builder.sources import hipify_sources, sources_of
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.claims import FLAGS_SUFFIX, PartKind
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.shards import parse_shard

if TYPE_CHECKING:
    from torchwheel_runtime.builder.ninja import Objects

NATIVE_REQUIREMENTS = ("ninja>=1.11", "pybind11>=2.13")
"""What a native build needs beside setuptools; the pure wheel can be built without them."""
PROVISION_REQUIREMENTS = ("pip>=24.1", "rich>=13.7")
"""What a native build needs to provision its toolkit and torch's headers."""


def setup_arguments(project: Path, packages: str, description: str) -> dict[str, Any]:
    """Keyword arguments for `setuptools.setup`.

    Every wheel has the sources, so that it can be built at first use where no prebuilt library
    serves; a native wheel has a library too. The wheel of a part has its library alone: nobody
    installs it.

    Args:
        project: the folder of setup.py.
        packages: the folder of its Python packages, e.g. "pkg".
        description: the file that says what the extension is, e.g. "pkg/fusedops/extension.py"; it
            defines EXTENSION and imports torchwheel_runtime.builder alone.
    """
    try:
        extension: Extension = runpy.run_path(str(project / description))["EXTENSION"]
        source = project / extension.sources
        if variables.can_complete(os.environ):
            native = _native(
                extension,
                lambda: _provision_target(extension, source),
                platform=variables.read_platform(os.environ),
                name=os.environ.get(variables.NAME) or "stable",
            )
            native["setup_requires"] += PROVISION_REQUIREMENTS
        elif target := variables.read_target(os.environ, source):
            variables.require_stable_floor(extension, target)
            native = _native(
                extension,
                lambda: target,
                platform=target.platform,
                name=target.name,
                part=target.part,
                suffix=target.python.suffix if target.python else None,
            )
            if target.part:
                return {"packages": [], **native}
        else:
            native = {}
        return {**_with_sources(extension, project, packages), **native}
    except TorchwheelError as error:
        raise SystemExit(f"error: {error}") from error


def _provision_target(extension: Extension, source: Path) -> Target:
    """The target of a build whose environment names the ABI flavour alone."""
    from torchwheel_runtime.builder.provision import (  # noqa: PLC0415 - see below
        complete_environment,
    )
    from torchwheel_runtime.console import Terminal  # noqa: PLC0415 - for this alone

    with Terminal().live_line() as progress:
        environ = complete_environment(os.environ, extension, progress)
    target = variables.read_target(environ, source)
    if target is None:
        raise TypeError("a build without an ABI flavour is not provisioned")
    variables.require_stable_floor(extension, target)
    return target


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


def build_library(
    extension: Extension,
    target: Target,
    output: Path,
    temporary: Path,
    environ: Mapping[str, str],
) -> None:
    """Build the library of `target` as `environ` says, and copy it to `output`.

    Where `environ` names a shard, that part of what variants share is compiled, and `output` is
    empty.
    """
    from torchwheel_runtime.builder.ninja import (  # noqa: PLC0415 - these need ninja
        build,
        parallel_jobs,
        say_to_stdout,
    )
    from torchwheel_runtime.builder.objects import (  # noqa: PLC0415
        collect_objects,
        compile_shared,
        take_objects,
    )
    from torchwheel_runtime.builder.probes import find_probes  # noqa: PLC0415
    from torchwheel_runtime.builder.recipe import Recipe  # noqa: PLC0415

    folder = Path(environ.get(variables.BUILD_FOLDER) or temporary).resolve()
    named = environ.get(variables.SHARED_FOLDER)
    shared = Path(named).resolve() if named else None
    target = dataclasses.replace(
        target,
        probes=find_probes(extension, target),
        operators_off=variables.operators_off(extension, environ),
    )
    sources = sources_of(extension, target)
    recipe = Recipe(extension, *hipify_sources(extension, sources, target, folder / "translated"))
    if shared and (shard := environ.get(variables.SHARD)):
        compiled = compile_shared(
            recipe, shared, parse_shard(shard, variables.SHARD), parallel_jobs(), say_to_stdout
        )
        collect_objects(recipe, compiled, folder / OBJECTS)
        output.touch()
        return
    elsewhere = [
        Path(name) for name in environ.get(variables.KERNELS, "").split(os.pathsep) if name
    ]
    taken: Objects = {}
    if shared and elsewhere:
        only = bool(environ.get(variables.KERNELS_ONLY))
        taken = take_objects(recipe, elsewhere, folder / OBJECTS, only=only)
    built = build(recipe, folder, shared, parallel_jobs(), say_to_stdout, taken)
    shutil.copyfile(built, output)
    if texts := recipe.flag_texts():
        record = output.with_name(f"{output.name}{FLAGS_SUFFIX}")
        record.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")


def _native(
    extension: Extension,
    find_target: Callable[[], Target],
    *,
    platform: str,
    name: str,
    part: PartKind | None = None,
    suffix: str | None = None,
) -> dict[str, Any]:
    """What setuptools must know of a library before anything is provisioned.

    Args:
        extension: the extension.
        find_target: gives the target of the build, when it begins.
        platform: of the wheel, e.g. "linux_x86_64".
        name: names the library's file.
        part: the part of a universal wheel that it is.
        suffix: of an extension module, which is for one CPython; None for a library for any.
    """

    class BuildLibrary(build_ext):
        """Builds in a folder that outlives the build: only what changed is compiled."""

        def get_ext_filename(self, fullname: str) -> str:
            end = ".abi3.so" if part == "entry_points" else suffix or ".so"
            return f"{fullname.replace('.', os.sep)}{end}"

        def build_extension(self, ext: ExtensionModule) -> None:
            output = Path(self.get_ext_fullpath(ext.name))
            output.parent.mkdir(parents=True, exist_ok=True)
            try:
                build_library(extension, find_target(), output, Path(self.build_temp), os.environ)
            except TorchwheelError as error:
                raise SystemExit(f"error: {error}") from error

    class TaggedWheel(bdist_wheel):
        """Names the platform that is built for, and no Python where the library imports none."""

        def initialize_options(self) -> None:
            super().initialize_options()
            self.plat_name = platform

        def get_tag(self) -> tuple[str, str, str]:
            python, abi, tag = super().get_tag()
            return (python, abi, tag) if suffix else ("py3", "none", tag)

    # A dot would start a subpackage: "rocm6.4-stable".
    folder = ".".join((extension.package, LIBRARIES, *([part] if part else [])))
    module = extension.module.name if extension.module and suffix else None
    return {
        "ext_modules": [
            ExtensionModule(module or f"{folder}.{name.replace('.', '_')}", sources=[])
        ],
        "cmdclass": {"build_ext": BuildLibrary, "bdist_wheel": TaggedWheel},
        # A front end (pip, build) asks for them before it builds.
        "setup_requires": list(NATIVE_REQUIREMENTS),
    }
