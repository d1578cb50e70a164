"""What a project's pyproject.toml declares of its wheel: its name, packages and entry points."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from torchwheel.text_files import exists, read_toml
from torchwheel_runtime.errors import UsageError

EntryPoints = Mapping[str, Mapping[str, str]]
"""By group, e.g. "console_scripts": the object of each name."""

_TABLES = {"scripts": "console_scripts", "gui-scripts": "gui_scripts"}


@dataclasses.dataclass(frozen=True)
class Declared:
    """The wheel that a project declares.

    Attributes:
        name: the distribution's name, normalized.
        packages: its top packages and modules: a wheel of it holds no others.
        entry_points: those that its wheel may have.
    """

    name: str
    packages: tuple[str, ...]
    entry_points: EntryPoints = dataclasses.field(default_factory=dict)


def read_declared(folder: Path, name: str = "", packages: Sequence[str] = ()) -> Declared:
    """Read the pyproject.toml of a folder.

    Args:
        folder: the project's.
        name: the project's name where the file has none.
        packages: its top packages; if empty, those that the file lists for setuptools, else the
            one with the project's name.
    """
    file = folder / "pyproject.toml"
    # A project of a setup.py alone declares nothing.
    content = read_toml(file) if exists(file) else {}
    project = _table(content, "project")
    own = project.get("name", name)
    if not isinstance(own, str) or not own:
        raise UsageError(f"{file}: expected key project.name, found none; write the name there")
    tops = packages or _listed(content) or (re.sub(r"[-_.]+", "_", own),)
    return Declared(canonicalize_name(own), tuple(tops), _entry_points(project))


def _listed(content: Mapping[str, Any]) -> tuple[str, ...]:
    """The top packages and modules that setuptools is told by name."""
    setuptools = _table(_table(content, "tool"), "setuptools")
    lists = (setuptools.get(key, ()) for key in ("packages", "py-modules"))
    names = [name for one in lists if isinstance(one, list) for name in one]
    return tuple(dict.fromkeys(str(name).partition(".")[0] for name in names))


def _entry_points(project: Mapping[str, Any]) -> EntryPoints:
    groups = {group: _table(project, table) for table, group in _TABLES.items()}
    others = _table(project, "entry-points")
    groups |= {group: _table(others, group) for group in others}
    return {group: {k: str(v) for k, v in table.items()} for group, table in groups.items()}


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name, {})
    return found if isinstance(found, dict) else {}
