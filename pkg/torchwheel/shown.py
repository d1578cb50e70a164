"""How a value from a user's file is shown in a message: quoted, short, always on one line."""

import difflib
import json
import re
from collections.abc import Iterable

Path = tuple[str | int, ...]

_LONGEST = 60
_MOST = 12


def quoted(text: str) -> str:
    """`text` in double quotes, escaped where it would break the line, cut where it is long."""
    plain = json.dumps(cut(text), ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in plain)


def cut(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def dotted(path: Path) -> str:
    """A place in the file, e.g. `toolkits.cu130.archs[2]` or `torch["2.11"].pythons`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"\w{1,60}", part):
            text += f".{part}" if text else part
        else:
            text += f"[{quoted(part)}]"
    return text


def listed(names: Iterable[str]) -> str:
    """Names in a row: `a, b, c`."""
    return ", ".join(names)


def nearest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Advice: the known names most like `name`, or all of them when none is like it."""
    known = list(known)
    close = difflib.get_close_matches(name[:100], known, n=most, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(quoted(text) for text in close)}?"
    shown = known if len(known) <= _MOST else [*known[:_MOST], "…"]
    return f"expected one of: {listed(shown)}" if known else "there is none"


def version_key(text: str) -> tuple[int, ...]:
    """Order of "2.9" and "2.11" as releases, not as text."""
    return tuple(int(part) for part in text.split("."))
