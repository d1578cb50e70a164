"""Text for messages and tables: quoted values, names in a row, sizes, ages, columns."""

import difflib
import json
import os
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from torchwheel_runtime.errors import UsageError

KeyPath = tuple[str | int, ...]

_MOST_CHARACTERS = 60
_MOST_OF_LINE = 400
_MOST_NAMES = 12


def quote(text: str) -> str:
    """`text` in double quotes, escaped where it would break the line, cut where it is long."""
    return escape(json.dumps(shorten(text), ensure_ascii=False))


def escape(text: str) -> str:
    """`text` with every character that would break or reorder the line written as its number."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


_ODD = re.compile(r"[\udc80-\udcff]+|[^\n\t -~]")


def escape_lines(text: str) -> str:
    """Lines, escaped but for line feeds, tabs, and bytes of a file's name that are no text."""
    return _ODD.sub(_escape_odd, text)


def _escape_odd(found: re.Match[str]) -> str:
    """One character, or bytes of a file's name, which a terminal may read as a character."""
    text = found[0]
    as_read = text
    if "\udc80" <= text[0] <= "\udcff":
        as_read = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    harmless = all(c.isprintable() or "\udc80" <= c <= "\udcff" for c in as_read)
    return text if harmless else escape(text)


Style = Literal["good", "bad", "warning", "strong"]
_SGR: Mapping[Style, str] = {"good": "32", "bad": "31", "warning": "33", "strong": "1"}
_MARKS = f"\x1b{os.urandom(4).hex()}"
"""The start of our own codes, which nobody who names a file or a package can know."""
_PAINTED = re.compile(rf"{_MARKS}\[(\d*m)")
_STATUS: Mapping[str, Style] = {
    **dict.fromkeys(("ok", "passed"), "good"),
    **dict.fromkeys(("FAILED", "failed", "corrupt"), "bad"),
    **dict.fromkeys(
        ("passed, not run on a GPU", "imported, not run on a GPU", "in use"), "warning"
    ),
}
"""Cells of a table that say how something ended."""
_paints = False


def use_colours(on: bool) -> None:
    """Decide whether `paint` marks text from now on."""
    global _paints  # noqa: PLW0603 - one process has one command line
    _paints = on


def paint(text: str, style: Style) -> str:
    """`text` in a colour, if colours are on. Pad it first: the marks have a width."""
    return f"{_MARKS}[{_SGR[style]}m{text}{_MARKS}[m" if _paints else text


def escape_painted(text: str, *, coloured: bool) -> str:
    """`escape_lines` of a text, with the colours of `paint` or without them."""
    parts = _PAINTED.split(text)
    parts[::2] = map(escape_lines, parts[::2])
    parts[1::2] = (f"\x1b[{code}" if coloured else "" for code in parts[1::2])
    return "".join(parts)


def shorten(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def shorten_line(text: str) -> str:
    """The beginning and the end of a long line, such as an error that names a long path twice."""
    if len(text) <= 2 * _MOST_OF_LINE:
        return text
    return f"{text[:_MOST_OF_LINE]} … {text[-_MOST_OF_LINE:]}"


# A path made of an address has one slash. A password with a slash is cut to its end, not to a port.
_USERS = re.compile(
    r"((?<=://)|(?<=https:/))([^/?#\s]*|[^/?#\s@:]*:(?!\d*([/?#,\"']|$))\S*)@", re.MULTILINE
)


_QUERIES = re.compile(r"""(://[^\s?#"'<>]*)\?[^\s"'<>#]*[^\s"'<>),;:.#]""")


def hide_secrets(text: str) -> str:
    """`text` without the users, passwords and queries of the addresses in it.

    A query may have a token, e.g. GitLab's `?private_token=...`.
    """
    return _QUERIES.sub(r"\1?****", _USERS.sub("****@", text))


def dotted_path(path: KeyPath) -> str:
    """A key's path in a file, e.g. `toolkits.cu130.archs[2]` or `torch["2.11"].pythons`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"\w{1,60}", part):
            text += f".{part}" if text else part
        else:
            text += f"[{quote(part)}]"
    return text


def join_names(names: Iterable[str]) -> str:
    """Names with commas: `a, b, c`."""
    return ", ".join(names)


def suggestion(name: str, known: Sequence[str]) -> str:
    """Advice: the known names that may be meant; empty if none is."""
    close = difflib.get_close_matches(name[:100], known, cutoff=0.66)
    close = close or [one for one in known if name.startswith(one)]
    return f"did you mean {' or '.join(map(quote, close))}?" if close else ""


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Advice: the known names that may be meant, else what is given, else all of them."""
    known = list(known)
    if meant := suggestion(name, known) or otherwise:
        return meant
    names = known if len(known) <= _MOST_NAMES else [*known[:_MOST_NAMES], "…"]
    return f"expected one of: {join_names(names)}" if known else "there is none"


WIDTH = 80
_UNITS = {1 << 30: "GiB", 1 << 20: "MiB"}


def size_text(size: int, decimals: int = 1) -> str:
    """A size for a person, e.g. "412 KiB", "1.5 MiB"; of KiB it has one decimal less."""
    for unit, name in _UNITS.items():
        if size >= unit:
            return f"{size / unit:.{decimals}f} {name}"
    return f"{size / 1024:.{decimals - 1}f} KiB"


def clock_text(seconds: float) -> str:
    """Minutes and seconds, with hours if there are any: 2:05, 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def cut_columns(text: str, columns: int) -> str:
    """The beginning of a text that fits in so many columns; some characters take two."""
    at = 0
    for index, character in enumerate(text):
        at += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if at > columns:
            return text[:index]
    return text


def table_rows(form: str, rows: Iterable[Sequence[str]], *, wrap: bool = False) -> list[str]:
    """The rows of a table as text, columns two blanks apart; one text for each row.

    Args:
        form: the columns, e.g. "<7 >8 <": alignment and least width. A wider cell widens its
            column. Without a cell that says something, but `-`, it is left out.
        rows: the cells, the head's first, which are escaped. A row may end early; its last cell is
            not padded.
        wrap: whether the last cell is wrapped at the width of the page, below its first line.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    columns = [(column[0], int(column[1:] or 0)) for column in form.split()]
    empty = [{row[at] for row in cells[1:] if at < len(row)} == {"-"} for at in range(len(columns))]
    columns = [column for column, without in zip(columns, empty, strict=True) if not without]
    cells = [
        [cell for cell, without in zip(row, empty, strict=False) if not without] for row in cells
    ]
    widths = [
        max([least, *(len(row[at]) for row in cells if at < len(row) - 1)])
        for at, (_, least) in enumerate(columns)
    ]
    texts = []
    for *padded, last in cells:
        starts = [
            (cell, f"{cell:{align}{width}}  ")
            for cell, (align, _), width in zip(padded, columns, widths, strict=False)
        ]
        lines = hanging_lines("".join(start for _, start in starts), last) if wrap else []
        row = "".join(_painted_cell(*one) for one in (*starts, (last, last.rstrip())))
        texts.append("\n".join(lines or [row]).rstrip())
    return texts


def _painted_cell(cell: str, padded: str) -> str:
    return padded.replace(cell, paint(cell, _STATUS[cell])) if cell in _STATUS else padded


def hanging_lines(start: str, text: str) -> list[str]:
    """Lines of `text` as wide as the page: the first begins with `start`, the others align to it.

    Words stay in one piece however long, so that a path or a command can be copied.
    """
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
        break_long_words=False,
    )


def detail_lines(name: str, text: str) -> list[str]:
    """Lines below a row, for a text that is too long for a column."""
    return hanging_lines(f"  {name:<6}", text)


CACHE_SIZE = "TORCHWHEEL_CACHE_SIZE"

_DEFAULT = 2 << 30
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"


def size_cap(environ: Mapping[str, str] = os.environ) -> int:
    """The cache's limit in bytes: TORCHWHEEL_CACHE_SIZE, else 2 GiB."""
    text = environ.get(CACHE_SIZE)
    return parse_size(text, CACHE_SIZE) if text else _DEFAULT


def parse_size(text: str, where: str) -> int:
    """Bytes from e.g. "2G", "500M", "1.5GiB" or "0"; units are powers of 1024."""
    match = re.fullmatch(rf"{_NUMBER} ?([KMGT]?)(?:I?B)?", text.strip().upper(), re.ASCII)
    if not match:
        raise UsageError(f'{where}={quote(text)}: a size expected, e.g. "2G" or "500M"')
    return int(float(match[1]) * _BYTES[match[2]])


def parse_age(text: str, where: str) -> float:
    """Seconds from e.g. "30d", "12h" or "2w"."""
    match = re.fullmatch(rf"{_NUMBER} ?([mhdw])", text.strip(), re.ASCII)
    if not match:
        raise UsageError(f'{where}={quote(text)}: an age expected, e.g. "30d", "12h" or "2w"')
    return float(match[1]) * _SECONDS[match[2]]
