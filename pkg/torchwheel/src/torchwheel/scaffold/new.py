"""Writes a new extension: one kernel, its tests, the matrix, sessions and a workflow."""

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.scaffold.templates import CARRIED, carried_files, render_templates
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.builder.extension import STABLE_SINCE
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import make_folder_atomically, sha256
from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import version_numbers

_CUDA_MAJOR = 13
# Any torch from the floor on would do; this one installs in seconds.
_SMOKE_TORCH = "2.13.0"


def new_project(name: str, where: Path, wheels: Sequence[Path]) -> Path:
    """Write the project `name` into the folder `where / name`; returns that folder.

    Args:
        name: of the project.
        where: the folder in which its folder is made.
        wheels: torchwheel's own, which the project carries, the run-time half's first.

    Raises:
        UsageError: the name is unsuitable, or the folder exists.
    """
    package = package_name(name)
    folder = where / name
    if folder.exists():
        raise UsageError(f"{folder}: is there already; take another name, or --folder")
    with make_folder_atomically(folder) as temporary:
        for path, content in render_project(name, package, wheels).items():
            target = temporary / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return folder


def package_name(name: str) -> str:
    """The package's name, e.g. "my_kernels" for "my-kernels"."""
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(package):
        raise UsageError(
            f"{quote(name)}: small letters, digits and hyphens expected, a letter first, "
            'e.g. "my-kernels"'
        )
    if package in {
        "torch",
        "torchwheel",
        "torchwheel_runtime",
        "setup",
        "noxfile",
        "tests",
        *sys.stdlib_module_names,
    }:
        raise UsageError(f"{quote(name)}: another module has this name; take another")
    return package


def render_project(project: str, package: str, wheels: Sequence[Path]) -> Mapping[str, bytes]:
    """The project's files by path; it carries the wheels of torchwheel."""
    major, minor, *_ = version_numbers(__version__)
    values = {
        "project": project,
        "package": package,
        "torchwheel": __version__,
        "next_torchwheel": f"{major}.{minor + 1}",
        "carried": f"{CARRIED}/{wheels[0].name}",
        "carried_sha256": sha256(wheels[0]),
        "first_session": "wheels",
        "torch": _served_torch_releases(),
        "smoke_torch": _SMOKE_TORCH,
    }
    texts = {**render_templates("shared", values), **render_templates("new", values)}
    return {
        **{path: text.encode() for path, text in texts.items()},
        **carried_files(wheels),
    }


def _served_torch_releases() -> dict[str, str]:
    """The torch minors that the toolkit works with, and their Pythons as YAML."""
    return {
        minor: "[" + ", ".join(f'"{python}"' for python in facts.pythons) + "]"
        for minor, facts in torch_releases().items()
        if version_numbers(minor) >= version_numbers(STABLE_SINCE)
        and _CUDA_MAJOR in facts.majors("cuda")
    }
