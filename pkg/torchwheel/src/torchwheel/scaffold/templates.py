"""Renders the files of a project from their templates, and adds the torchwheel that it carries."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from torchwheel.data import FOLDER
from torchwheel_runtime.files import sha256

_TEMPLATES = Path(__file__).parent / "templates"
# The suffix hides templates from tools that read this package's Python files. The prefix stands for
# a dot: setuptools leaves names that begin with a dot out of the package.
_SUFFIX, _HIDDEN_PREFIX = ".in", "dot_"

CARRIED = ".torchwheel"
"""The folder of torchwheel's wheels in a project, and of their lock."""
LOCK = f"{CARRIED}/requirements.txt"
_LOCK_HEAD = """\
# torchwheel and all that it needs, each by its hash. `torchwheel adopt` writes this file.
"""


def render_templates(folder: str, values: Mapping[str, object]) -> Mapping[str, str]:
    """The files of a folder of templates: text by path.

    Args:
        folder: "shared", "new" or "adopted".
        values: the variables of the templates; `package` also stands for NAME in a path.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES / folder),
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
    names = environment.list_templates([_SUFFIX.removeprefix(".")])
    package = str(values["package"])
    return {_target(name, package): environment.get_template(name).render(values) for name in names}


def carried_files(wheels: Sequence[Path]) -> Mapping[str, bytes]:
    """The wheels of torchwheel and the lock that pins them, as files of a project."""
    paths = {f"{CARRIED}/{wheel.name}": wheel for wheel in wheels}
    own = "".join(
        f"./{path} \\\n    --hash=sha256:{sha256(wheel)}\n" for path, wheel in paths.items()
    )
    locked = (FOLDER / "pipeline.lock.txt").read_text(encoding="utf-8")
    pins = "".join(one for one in locked.splitlines(True) if not one.startswith("#"))
    files = {path: wheel.read_bytes() for path, wheel in paths.items()}
    return {**files, LOCK: (_LOCK_HEAD + own + pins).encode()}


def _target(name: str, package: str) -> str:
    parts = [
        re.sub(f"^{_HIDDEN_PREFIX}", ".", part) for part in name.removesuffix(_SUFFIX).split("/")
    ]
    return "/".join(package if part == "NAME" else part for part in parts)
