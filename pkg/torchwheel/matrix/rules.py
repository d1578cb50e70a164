"""Rules of a matrix that its types cannot express: names exist, combinations are possible."""

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from torchwheel.matrix.document import MatrixFinding
from torchwheel.matrix.ordinary_rules import (
    built_once,
    ordinary_alone,
    smoke_declared,
    source_possible,
    toolkits_exist,
)
from torchwheel.matrix.runners import runners_complete
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.toolkit_rules import (
    abis_declared,
    pairs_possible,
    toolkits_possible,
    torches_known,
    universal_possible,
)
from torchwheel.matrix.variants import all_variants, exclusion
from torchwheel.text import KeyPath, nearest, quote

PROJECT = "pyproject.toml"
WHEEL_SUFFIX = ".whl"


def bundled_exist(matrix: Matrix, root: Path) -> Iterator[MatrixFinding]:
    """Each folder or wheel lies below `root`, the folder of matrix.yaml, and can be taken."""
    seen = [(root / matrix.project.source).resolve()]
    for i, name in enumerate(matrix.project.bundled):
        folder = (root / name).resolve()
        if what := _fault(folder, root.resolve(), seen):
            yield ("project", "bundled", i), f"{quote(name)} {what}"
        seen.append(folder)


def _fault(folder: Path, root: Path, seen: Collection[Path]) -> str | None:
    if not folder.is_relative_to(root):
        return f"leads out of the project, to {folder}"
    if folder.name.endswith(WHEEL_SUFFIX):
        return None if folder.is_file() else "is no file; expected the wheel of a distribution"
    if not folder.is_dir():
        return f"is no folder; expected that of a distribution, with its {PROJECT}"
    if not (folder / PROJECT).is_file():
        return f"has no {PROJECT}; expected the folder of a distribution"
    if folder in seen:
        return "is the project itself or listed twice; expected another distribution"
    return None


MatrixRule = Callable[[Matrix], Iterable[MatrixFinding]]


def findings(matrix: Matrix) -> list[MatrixFinding]:
    """All faults, as (place, text); empty for a right matrix."""
    faults = list(chain.from_iterable(rule(matrix) for rule in RULES))
    # Patterns of variant ids can be judged only if toolkits, torches and platforms are right.
    return faults or list(patterns_match(matrix))


def no_duplicates(matrix: Matrix) -> Iterator[MatrixFinding]:
    """No list has an entry twice, because two variants would have one id."""
    yield from _duplicates(("platforms",), matrix.platforms)
    if matrix.abis.universal:
        path: KeyPath = ("abis", "universal")
        yield from _duplicates((*path, "toolkits"), matrix.abis.universal.toolkits)
        yield from _duplicates((*path, "torch"), matrix.abis.universal.torch)
    for name, toolkit in matrix.toolkits.items():
        yield from _duplicates(("toolkits", name, "abis"), toolkit.abis)
        without_ptx = [str(arch.with_ptx(False)) for arch in toolkit.archs]
        yield from _duplicates(("toolkits", name, "archs"), without_ptx)
    for minor, release in matrix.torch.items():
        yield from _duplicates(("torch", minor, "toolkits"), release.toolkits)
        yield from _duplicates(("torch", minor, "pythons"), release.pythons)
    for platform, machines in matrix.runners.items():
        for use, labels in machines:
            yield from _duplicates(("runners", platform, use), labels or ())


def patterns_match(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Every selection and every exclusion matches a variant."""
    ids = [variant.id for variant in all_variants(matrix)]
    for i, entry in enumerate(matrix.exclude):
        if not fnmatch.filter(ids, entry.variant):
            yield (
                ("exclude", i, "variant"),
                f"no variant {quote(entry.variant)} to exclude; {nearest(entry.variant, ids)}",
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
                    f"no variant {quote(pattern)}; {why or nearest(pattern, built)}",
                )


def _duplicates(path: KeyPath, items: Sequence[str]) -> Iterator[MatrixFinding]:
    for i, item in enumerate(items):
        if item in items[:i]:
            yield (*path, i), f"duplicate {quote(item)}: it is listed twice"


RULES: tuple[MatrixRule, ...] = (
    no_duplicates,
    ordinary_alone,
    toolkits_exist,
    built_once,
    source_possible,
    smoke_declared,
    abis_declared,
    toolkits_possible,
    torches_known,
    pairs_possible,
    universal_possible,
    runners_complete,
)
