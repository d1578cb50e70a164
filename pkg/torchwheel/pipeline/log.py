"""A long log's one line that says why."""

import re
from pathlib import Path

_NAMED = re.compile(r"(torchwheel: |error: |E   |\w*Error: )")


def reason(log: Path, otherwise: str) -> str:
    """The last line of `log` that names an error, else `otherwise`."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line for line in lines if _NAMED.match(line)]
    return (named[-1] if named else otherwise).removeprefix("error: ").removeprefix("torchwheel: ")
