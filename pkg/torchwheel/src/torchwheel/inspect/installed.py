"""Where the files of a wheel are installed, whose names they take, and what runs them."""

import re
import sys
from collections.abc import Mapping

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.text import quote

OF_PYTHON = "a module of Python"
_OF_EVERYBODY = """
_distutils_hack _pytest distutils filelock fsspec functorch jinja2 markupsafe mpmath networkx numpy
nvidia packaging pip pkg_resources pytest setuptools sympy torch torchgen torchwheel triton
typing_extensions uv wheel
"""
"""Modules of torch, of what it requires, and of installers: who has torch has most of them."""


def is_outside(member: str) -> bool:
    """Whether a file goes to another folder than the packages', as scripts and data do."""
    return member.startswith(("/", "../")) or member.partition("/")[0].endswith(".data")


def runs_at_start(member: str) -> bool:
    """Whether Python reads or imports a file whenever it starts.

    It reads `.pth` files and, since 3.15, `.start` files beside the packages, and imports two
    modules. The folders purelib and platlib of `NAME.data` are unpacked there too.
    """
    path = re.sub(r"^[^/]*\.data/(purelib|platlib)/", "", member).casefold()
    module = re.match(r"(sitecustomize|usercustomize)[./]", path)
    return bool(module or re.fullmatch(r"[^/]*\.(pth|start)", path))


def owner_of(top: str, own: str | None, metadata: Metadata | None) -> str | None:
    """Whose name a top package or module of a wheel has, if it is another's: "its requirement x".

    `own` is the wheel's name. Letters of either case count as equal, as some file systems have it.
    """
    name = top.partition(".")[0]
    if name.casefold() in sys.stdlib_module_names:
        return OF_PYTHON
    if canonicalize_name(name) == own:
        return None
    for requirement in (metadata.requires_dist if metadata else None) or ():
        if canonicalize_name(requirement.name) == canonicalize_name(name):
            return f"its requirement {requirement.name}"
    return "a package that others install" if name.casefold() in _OF_EVERYBODY.split() else None


PROGRAMS = ("console_scripts", "gui_scripts")
"""The groups of entry points that are programs; other programs load those of other groups."""
_GROUP = re.compile(r"\[([\w.-]+)\]", re.ASCII)
_ENTRY = re.compile(r"([\w.+/@:-](?:[\w .+/@:-]*[\w.+/@:-])?) *= *(\S.*)")


def parse_entry_points(text: str) -> Mapping[str, Mapping[str, str]]:
    """The entry points of entry_points.txt, by group; a WheelError if it is malformed.

    Installers and Python read the file in ways of their own. What they may read differently is
    malformed: a line that is indented more than the others, or is neither a group nor an entry.
    """
    found: dict[str, dict[str, str]] = {}
    entries: dict[str, str] | None = None
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    indent = len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0
    for line in lines:
        rest = line.removeprefix(" " * indent)
        if rest.lstrip().startswith("#"):
            continue
        if group := _GROUP.fullmatch(rest):
            entries = found.setdefault(group[1], {})
        elif (entry := _ENTRY.fullmatch(rest)) and entries is not None:
            if entries.setdefault(entry[1], entry[2]) != entry[2]:
                raise WheelError(f"entry_points.txt: malformed: {quote(entry[1])} is there twice")
        else:
            raise WheelError(f"entry_points.txt: malformed: {quote(line)}")
    return found
