"""A problem of a matrix, and the error that carries one line for each."""

import dataclasses
from collections.abc import Iterable

from torchwheel.errors import UsageError
from torchwheel.shown import Path, dotted


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong at one place of the file."""

    line: int
    path: Path
    text: str


class MatrixError(UsageError):
    """The matrix cannot be used: one line for each problem, in the order of the file."""

    @classmethod
    def of(cls, where: str, problems: Iterable[Problem]) -> "MatrixError":
        """Lines such as `matrix.yaml:14: toolkits.cu130.archs[2]: "9.x" is not an arch; …`."""
        return cls(
            "\n".join(
                f"{where}:{p.line}: {dotted(p.path) + ': ' if p.path else ''}{p.text}"
                for p in sorted(problems, key=lambda p: p.line)
            )
        )
