"""Rows of the doctor's table: a label, and a text that is broken to fit 80 columns."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchwheel.table import WIDTH

_LABEL = 10
_TEXT = WIDTH - _LABEL - 1


def row(label: str, text: str) -> list[str]:
    """One row; a path that is too long for it loses its beginning."""
    words = _shown(text).replace(f"{Path.home()}/", "~/").split()
    fitting = (word if len(word) <= _TEXT else f"…{word[1 - _TEXT :]}" for word in words)
    return unbroken(label, " ".join(fitting))


def rows(label: str, texts: Iterable[str]) -> Iterator[str]:
    """A row for each, the label before the first; "none" where there is none."""
    for number, text in enumerate(list(texts) or ["none"]):
        yield from row("" if number else label, text)


def unbroken(label: str, text: str) -> list[str]:
    """One row whose words stay whole, however long, so that a command can be copied."""
    return textwrap.wrap(
        _shown(text),
        WIDTH,
        initial_indent=f"{label:<{_LABEL}} ",
        subsequent_indent=" " * (_LABEL + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shown(text: str) -> str:
    """What a package says need not be text, and must not move the cursor."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in " ".join(text.split()))
