"""What a well-shaped matrix must also keep: names that exist, pairs that are possible."""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from torchwheel.matrix.finding import Finding
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.resolve import all_variants, exclusion
from torchwheel.matrix.runners import runners_whole
from torchwheel.matrix.toolkit_rules import abis_declared, toolkits_possible
from torchwheel.matrix.torch_rules import pairs_possible, torches_known
from torchwheel.shown import Path, nearest, quoted

Rule = Callable[[Matrix], Iterable[Finding]]


def findings(matrix: Matrix) -> list[Finding]:
    """Everything that is wrong, as (place, text); empty when the matrix is sound."""
    found = list(chain.from_iterable(rule(matrix) for rule in RULES))
    # Names of variants mean something only once the parts they are made of are right.
    return found or list(patterns_match(matrix))


def nothing_twice(matrix: Matrix) -> Iterator[Finding]:
    """An entry that is listed twice would make two variants of one id."""
    yield from _twice(("platforms",), matrix.platforms)
    for name, toolkit in matrix.toolkits.items():
        yield from _twice(("toolkits", name, "abis"), toolkit.abis)
        plain = [text.removesuffix("+PTX") for text in toolkit.archs]
        yield from _twice(("toolkits", name, "archs"), plain)
    for minor, release in matrix.torch.items():
        yield from _twice(("torch", minor, "toolkits"), release.toolkits)
        yield from _twice(("torch", minor, "pythons"), release.pythons)
    for platform, machines in matrix.runners.items():
        for use, labels in machines:
            yield from _twice(("runners", platform, use), labels or ())


def patterns_match(matrix: Matrix) -> Iterator[Finding]:
    """A selection or an exclusion that means nothing is a mistake."""
    ids = [variant.id for variant in all_variants(matrix)]
    for i, entry in enumerate(matrix.exclude):
        if not fnmatch.filter(ids, entry.variant):
            yield (
                ("exclude", i, "variant"),
                f"no variant {quoted(entry.variant)} to exclude; {nearest(entry.variant, ids)}",
            )
    built = [name for name in ids if exclusion(matrix, name) is None]
    for selection, patterns in matrix.selections.items():
        if selection in ids:
            yield ("selections", selection), "has the name of a variant; choose another"
        for i, pattern in enumerate(patterns):
            if not fnmatch.filter(built, pattern):
                why = "every match is excluded" if fnmatch.filter(ids, pattern) else ""
                yield (
                    ("selections", selection, i),
                    f"no variant {quoted(pattern)}; {why or nearest(pattern, built)}",
                )


def _twice(path: Path, items: Sequence[str]) -> Iterator[Finding]:
    for i, item in enumerate(items):
        if item in items[:i]:
            yield (*path, i), f"duplicate {quoted(item)}: it is listed twice"


RULES: tuple[Rule, ...] = (
    nothing_twice,
    abis_declared,
    toolkits_possible,
    torches_known,
    pairs_possible,
    runners_whole,
)
