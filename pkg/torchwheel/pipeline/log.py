"""A long log's one line that says why."""

import re
from pathlib import Path

_NAMED = re.compile(r"(torchwheel: |error: |E   |\w*Error: )")
# Lines that name an error and say no more than that a compiler ended badly.
_BARE = re.compile(r"error: command .* failed|RuntimeError: Error compiling objects")
_COMPILER = re.compile(
    r"\S[^:(]*[:(]\d+[^ ]* (fatal )?error\b|nvcc (fatal|error)|ptxas .*(fatal|error)|\S*/ld: "
)


def reason(log: Path, otherwise: str) -> str:
    """The last line of `log` that names an error, else `otherwise`.

    Where that line says only that a compiler failed, it is the compiler's own first error.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line for line in lines if _NAMED.match(line)]
    if named and _BARE.match(named[-1]):
        named += [line for line in lines if _COMPILER.match(line)][:1]
    return (named[-1] if named else otherwise).removeprefix("error: ").removeprefix("torchwheel: ")
