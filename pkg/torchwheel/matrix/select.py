"""Which variants a call means: by the name of a selection, by id or by pattern."""

import fnmatch
from collections.abc import Iterable, Sequence

from torchwheel.errors import UsageError
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.resolve import Variant, exclusion, resolve
from torchwheel.shown import listed, nearest, quoted


def select(matrix: Matrix, names: Sequence[str]) -> tuple[Variant, ...]:
    """Variants that the names mean, in the order of the matrix, each once.

    Args:
        matrix: the matrix.
        names: names of selections, variant ids, or patterns of ids such as "*-stable".

    Raises:
        UsageError: no name is given, or one means nothing; the line lists the nearest.
    """
    variants = resolve(matrix)
    wanted: set[str] = set()
    for name in names:
        patterns = matrix.selections.get(name, (name,))
        found = {variant.id for variant in variants if _matches(variant.id, patterns)}
        if not found:
            raise UsageError(_nothing(matrix, variants, name))
        wanted |= found
    if not wanted:
        raise UsageError(
            f"nothing is selected; expected a selection ({listed(matrix.selections)}) "
            "or variant ids"
        )
    return tuple(variant for variant in variants if variant.id in wanted)


def _matches(variant_id: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(variant_id, pattern) for pattern in patterns)


def _nothing(matrix: Matrix, variants: Sequence[Variant], name: str) -> str:
    if excluded := exclusion(matrix, name):
        return f"variant {quoted(name)} is excluded from the matrix: {excluded.reason}"
    known = [*matrix.selections, *(variant.id for variant in variants)]
    return f"no variant or selection {quoted(name)}; {nearest(name, known)}"
