"""Parts of the tables that commands print."""

import textwrap

WIDTH = 80
_UNITS = {1 << 30: "GiB", 1 << 20: "MiB"}


def size_text(size: int) -> str:
    """A size a person reads, e.g. "412 KiB", "1.5 MiB"."""
    for unit, name in _UNITS.items():
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.0f} KiB"


def below(name: str, text: str) -> list[str]:
    """Lines below a row, for what is too long for a column."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {name:<6}",
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
        break_long_words=False,
    )
