"""Reads text files that people write: matrix.yaml, yanked.yaml, pyproject.toml.

A checkout may be anybody's, so such a file may be a FIFO, a link to a device without an end, or too
large. Each of these is one line.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import NotRegularError, open_regular
from torchwheel_runtime.text import escape, shorten_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BYTES = 1 << 20
_KEY_PARTS = 16
"""The parts of a TOML key, a.b.c: tomllib takes memory by the square of their number."""
# No character is left that ends neither, so nothing is read twice.
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^"\\]+|\\.?|""?(?!"))*"{0,5}'''
    r"|'''(?:[^']+|''?(?!'))*'{0,5}"
    r"""|"(?:[^"\\\n]+|\\.?)*"?|'[^'\n]*'?|\#[^\n]*""",
    re.DOTALL,
)


def read_text(path: Path, missing: str = "check the path") -> str:
    """The text of a file.

    Args:
        path: the file.
        missing: what the user can do if there is none.

    Raises:
        UsageError: one line: it cannot be read, is no regular file, too large, or not UTF-8.
    """
    where = escape(str(path))
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{where}: no such file; {missing}") from None
    except NotRegularError:
        raise UsageError(f"{where}: expected a file, found something that is no file") from None
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise UsageError(explain(error, where)) from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{where}: expected at most {MAX_BYTES >> 10} KiB, found more")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{content[error.start]:02x}"
        raise UsageError(f"{where}:{line}: not UTF-8: {byte}; save it as UTF-8") from None


def exists(path: Path) -> bool:
    """Whether there is something at a path, a link that leads nowhere counting as nothing.

    Raises:
        UsageError: one line: it cannot be looked up.
    """
    try:
        return path.exists()
    except OSError as error:
        raise UsageError(explain(error)) from error


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        UsageError: one line; see `read_text`, and if it is no TOML.
    """
    text = read_text(path)
    try:
        _require_short_keys(text)
        tables: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        found = "lists or tables nested too deep"
    except ValueError as error:
        found = shorten_line(escape(" ".join(str(error).split())))
    else:
        return tables
    raise UsageError(f"{escape(str(path))}: expected TOML, found {found}")


def _require_short_keys(text: str) -> None:
    plain = _STRING_OR_COMMENT.sub(lambda found: "" if found[0][0] == "#" else "a", text)
    parts = re.sub(r"[\w-]+", "a", re.sub(r"[ \t]+", "", plain))
    if "a." * _KEY_PARTS in parts:
        raise ValueError(f"a key of more than {_KEY_PARTS} parts")
