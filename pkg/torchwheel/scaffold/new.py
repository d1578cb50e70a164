"""Writes a new extension: one kernel, its tests, the matrix, sessions and a workflow."""

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import jinja2

from torchwheel import __version__
from torchwheel.builder.extension import STABLE_SINCE
from torchwheel.errors import UsageError
from torchwheel.files import make_folder_atomically
from torchwheel.matrix.torch_releases import torch_releases
from torchwheel.text import quote
from torchwheel.versions import version_numbers

_TEMPLATE = Path(__file__).parent / "template"
# The suffix hides templates from tools that read this package's Python files. The prefix stands for
# a dot: setuptools leaves names that begin with a dot out of the package.
_TEMPLATE_SUFFIX, _HIDDEN_PREFIX = ".in", "dot_"
_CUDA_MAJOR = 13
# Any torch from the floor on would do; this one installs in seconds.
_SMOKE_TORCH = "2.13.0"


def new_project(name: str, where: Path) -> Path:
    """Write the project `name` into the folder `where / name`; returns that folder.

    Raises:
        UsageError: the name is unsuitable, or the folder exists.
    """
    package = package_name(name)
    folder = where / name
    if folder.exists():
        raise UsageError(f"{folder}: is there already; take another name, or --folder")
    with make_folder_atomically(folder) as temporary:
        for path, text in render_project(name, package).items():
            target = temporary / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    return folder


def package_name(name: str) -> str:
    """The package's name, e.g. "my_kernels" for "my-kernels"."""
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(package):
        raise UsageError(
            f"{quote(name)}: small letters, digits and hyphens expected, a letter first, "
            'e.g. "my-kernels"'
        )
    if package in {"torch", "torchwheel", "setup", "noxfile", "tests", *sys.stdlib_module_names}:
        raise UsageError(f"{quote(name)}: another module has this name; take another")
    return package


def render_project(project: str, package: str) -> Mapping[str, str]:
    """The project's files: text by path."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATE),
        autoescape=False,  # noqa: S701 - no page: source text
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        # Workflows do not use these delimiters; C++ has them around attributes alone.
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        comment_start_string="[#",
        comment_end_string="#]",
    )
    values = {
        "project": project,
        "package": package,
        "torchwheel": __version__,
        "torch": _served_torch_releases(),
        "smoke_torch": _SMOKE_TORCH,
    }
    names = environment.list_templates([_TEMPLATE_SUFFIX.removeprefix(".")])
    return {
        _target_path(name, package): environment.get_template(name).render(values) for name in names
    }


def _target_path(name: str, package: str) -> str:
    parts = [
        re.sub(f"^{_HIDDEN_PREFIX}", ".", part)
        for part in name.removesuffix(_TEMPLATE_SUFFIX).split("/")
    ]
    return "/".join(package if part == "NAME" else part for part in parts)


def _served_torch_releases() -> dict[str, str]:
    """The torch minors that the toolkit works with, and their Pythons as YAML."""
    return {
        minor: "[" + ", ".join(f'"{python}"' for python in facts.pythons) + "]"
        for minor, facts in torch_releases().items()
        if version_numbers(minor) >= version_numbers(STABLE_SINCE)
        and _CUDA_MAJOR in facts.majors("cuda")
    }
