"""What a build's own lines say of how far it is."""

import itertools
import re
from pathlib import PurePath

_COUNT = re.compile(r"\[\d+/\d+\]")
_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")


def doing(line: str) -> str | None:
    """Of a compiler's command, or ninja's line, e.g. "[2/9] compiling x.cu"; of others None."""
    words = line.split()
    after = [word for option, word in itertools.pairwise(words) if option == "-c"]
    source = next((word for word in after if word.endswith(_SOURCES)), None)
    if source is None:
        return None
    count = f"{words[0]} " if _COUNT.fullmatch(words[0]) else ""
    return f"{count}compiling {PurePath(source).name}"
