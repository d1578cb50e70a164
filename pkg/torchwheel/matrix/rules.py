"""Rules of a matrix that its types cannot express: names exist, combinations are possible."""

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from torchwheel.matrix.document import MatrixFinding
from torchwheel.matrix.project_source import parse_source
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
from torchwheel_runtime.text import KeyPath, nearest, quote

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


def ordinary_alone(matrix: Matrix) -> Iterator[MatrixFinding]:
    """The flavour `ordinary` stands alone: a project has its own build or torchwheel's builder."""
    if matrix.abis.ordinary is None:
        if matrix.build is not None:
            yield (
                ("build",),
                "says how a project's own build is called; expected ordinary: {} under abis",
            )
        return
    for name in ("stable", "aten", "pure", "universal"):
        if getattr(matrix.abis, name) is not None:
            yield (
                ("abis", name),
                "goes with torchwheel's builder, and abis.ordinary with the project's own; "
                "expected one of them",
            )


def built_once(matrix: Matrix) -> Iterator[MatrixFinding]:
    """A wheel of shards is built once."""
    if matrix.own_build.shards > 1 and matrix.gates.reproducible:
        yield (
            ("build", "shards"),
            "divides a build, and gates.reproducible wants two whole ones; expected one of them",
        )


def toolkits_exist(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Variables of a toolkit are of one that the matrix has."""
    for name in matrix.own_build.toolkit_environment:
        if name not in matrix.toolkits:
            known = nearest(name, matrix.toolkits)
            yield ("build", "toolkit_environment", name), f"is no toolkit of the matrix; {known}"


def source_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """What is fetched or unpacked is an ordinary project; a hash is of an sdist."""
    source = parse_source(matrix.project.source)
    if source.kind != "folder" and matrix.abis.ordinary is None:
        yield (
            ("project", "source"),
            f"{quote(matrix.project.source)} is no folder; such a source goes with abis.ordinary",
        )
    if matrix.project.sha256 and source.kind not in ("sdist", "release"):
        yield (
            ("project", "sha256"),
            "is the hash of an sdist; expected a source NAME==VERSION or a file",
        )


def smoke_declared(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Smoke tests are under `smoke`, of an ordinary project under `build`."""
    smoke = matrix.smoke
    if matrix.abis.ordinary:
        if smoke.tests:
            yield ("smoke", "tests"), "of an ordinary project are build.tests; expected them there"
        if smoke.torch:
            yield ("smoke", "torch"), "is the torch that each wheel is built for; take it out"
        return
    for key in ("tests", "torch"):
        if getattr(smoke, key) is None:
            yield ("smoke",), f'key "{key}" is missing'


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
