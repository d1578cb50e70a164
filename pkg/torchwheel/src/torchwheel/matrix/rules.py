"""Rules of a matrix that its types cannot express.

Names exist; combinations are possible; toolkits and torch releases fit together.
"""

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from torchwheel.matrix.document import Fault
from torchwheel.matrix.forms import parse_source
from torchwheel.matrix.sections import Matrix, ToolkitSection
from torchwheel.matrix.variants import PURE, all_variants, aten_releases, exclusion
from torchwheel_runtime.arch.model import BRANDS, backend_of
from torchwheel_runtime.arch.releases import TorchFacts, archs_by_release, torch_releases
from torchwheel_runtime.text import KeyPath, join_names, nearest, quote
from torchwheel_runtime.variant_format import NULL, arch_values, driver_bound
from torchwheel_runtime.versions import version_numbers

PROJECT = "pyproject.toml"
WHEEL_SUFFIX = ".whl"


def bundled_exist(matrix: Matrix, root: Path) -> Iterator[Fault]:
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


MatrixRule = Callable[[Matrix], Iterable[Fault]]


def findings(matrix: Matrix) -> list[Fault]:
    """All faults, as (place, text); empty for a right matrix."""
    faults = list(chain.from_iterable(rule(matrix) for rule in RULES))
    # Patterns of variant ids can be judged only if toolkits, torches and platforms are right.
    return faults or list(patterns_match(matrix))


def no_duplicates(matrix: Matrix) -> Iterator[Fault]:
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


def patterns_match(matrix: Matrix) -> Iterator[Fault]:
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


def _duplicates(path: KeyPath, items: Sequence[str]) -> Iterator[Fault]:
    for i, item in enumerate(items):
        if item in items[:i]:
            yield (*path, i), f"duplicate {quote(item)}: it is listed twice"


def ordinary_alone(matrix: Matrix) -> Iterator[Fault]:
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


def built_once(matrix: Matrix) -> Iterator[Fault]:
    """A wheel of shards is built once."""
    if matrix.own_build.shards > 1 and matrix.gates.reproducible:
        yield (
            ("build", "shards"),
            "divides a build, and gates.reproducible wants two whole ones; expected one of them",
        )


def toolkits_exist(matrix: Matrix) -> Iterator[Fault]:
    """Variables of a toolkit are of one that the matrix has."""
    for name in matrix.own_build.toolkit_environment:
        if name not in matrix.toolkits:
            known = nearest(name, matrix.toolkits)
            yield ("build", "toolkit_environment", name), f"is no toolkit of the matrix; {known}"


def source_possible(matrix: Matrix) -> Iterator[Fault]:
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


def smoke_declared(matrix: Matrix) -> Iterator[Fault]:
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


def runners_complete(matrix: Matrix) -> Iterator[Fault]:
    """If the matrix declares runners, exactly the platforms that are built have them."""
    if not matrix.runners:
        return
    built = [*matrix.platforms, *([PURE] if matrix.abis.pure else [])]
    for platform in built:
        if platform not in matrix.runners:
            yield ("runners",), f'key "{platform}" is missing: its wheels are built too'
    for platform, machines in matrix.runners.items():
        if platform not in built:
            yield ("runners", platform), f"nothing is built for it; built: {join_names(built)}"
        for backend in ("cuda", "rocm"):
            if platform == PURE and getattr(machines, backend):
                yield ("runners", platform, backend), "a wheel without GPU code needs no GPU"


def abis_declared(matrix: Matrix) -> Iterator[Fault]:
    """A toolkit is used; its flavours are declared in `abis:`; aten has a torch to build for."""
    used = matrix.abis.universal.toolkits if matrix.abis.universal else ()
    for name, toolkit in matrix.toolkits.items():
        if not toolkit.abis and name not in used:
            yield (
                ("toolkits", name, "abis"),
                f"is empty, and abis.universal does not use {name}; expected e.g. [stable]",
            )
        for i, abi in enumerate(toolkit.abis):
            path: KeyPath = ("toolkits", name, "abis", i)
            if getattr(matrix.abis, abi) is None:
                yield path, f'"{abi}" is not declared under abis'
            elif abi != "stable" and not aten_releases(matrix, name):
                yield path, f"no release under torch lists {name}; add it there or drop {abi}"


def toolkits_possible(matrix: Matrix) -> Iterator[Fault]:
    """A toolkit's name fits its release, and the release can compile every arch."""
    for name, toolkit in matrix.toolkits.items():
        path: KeyPath = ("toolkits", name)
        usual = toolkit.release.name
        if not name.startswith(usual):
            yield (
                (*path, "version"),
                f'{toolkit.release} does not go with the name "{name}"; expected "{usual}"',
            )
        known = archs_by_release(toolkit.backend)
        if toolkit.version not in known:
            yield (
                (*path, "version"),
                f"{toolkit.release} is not known; known: {join_names(known)} "
                "(a newer torchwheel may know it)",
            )
            continue
        if toolkit.source == "pypi" and (
            toolkit.backend != "cuda" or version_numbers(toolkit.version) < (13,)
        ):
            yield (
                (*path, "source"),
                f"PyPI has no compiler of {toolkit.release}, only of CUDA 13 and later; "
                'expected "system", "distribution" or "vendor"',
            )
        yield from _packages(path, toolkit, matrix)
        yield from _archs(path, toolkit, known[toolkit.version])


def archs_read_by_torch(matrix: Matrix) -> Iterator[Fault]:
    """Where torch's BuildExtension reads the archs, each torch that is built for takes them."""
    if matrix.abis.ordinary is None or matrix.own_build.archs_by != "environment":
        return
    for name, toolkit in matrix.toolkits.items():
        known = [one for one in aten_releases(matrix, name) if one in torch_releases()]
        for i, arch in enumerate(toolkit.archs):
            refusing = [one for one in known if not torch_releases()[one].takes(arch)]
            if refusing:
                yield (
                    ("toolkits", name, "archs", i),
                    f'"{arch}" is refused by the BuildExtension of torch {join_names(refusing)}; '
                    "take it out, or, where the project's own flags or CMake name the archs, write "
                    "build.archs_by: declared",
                )


def _packages(path: KeyPath, toolkit: ToolkitSection, matrix: Matrix) -> Iterator[Fault]:
    """Exactly the sources that are container images have packages."""
    contained = toolkit.source in ("distribution", "vendor")
    if contained and toolkit.packages is None:
        yield (*path, "packages"), f'missing; source "{toolkit.source}" installs packages'
    if contained and matrix.containers is None:
        yield (
            (*path, "source"),
            f'"{toolkit.source}" is built in a container, but there is no section "containers"',
        )
    if toolkit.packages and not contained:
        yield (
            (*path, "packages"),
            f'not used by source "{toolkit.source}"; expected "distribution" or "vendor"',
        )


def _archs(path: KeyPath, toolkit: ToolkitSection, known: Sequence[str]) -> Iterator[Fault]:
    for i, arch in enumerate(toolkit.archs):
        if backend_of(arch) != toolkit.backend:
            backend = BRANDS[toolkit.backend]
            example = "9.0" if toolkit.backend == "cuda" else "gfx90a"
            yield (
                (*path, "archs", i),
                f'"{arch}" is not an arch of {backend}; expected e.g. "{example}"',
            )
        elif arch.name not in known:
            yield (
                (*path, "archs", i),
                f'{toolkit.release} cannot compile "{arch}"; it can: {join_names(known)}',
            )


def torches_known(matrix: Matrix) -> Iterator[Fault]:
    """Every floor is a known torch release."""
    for abi in ("stable", "pure"):
        floor = getattr(matrix.abis, abi)
        if floor and floor.torch not in torch_releases():
            yield ("abis", abi, "torch"), _unknown_torch(floor.torch)
    oldest = matrix.abis.ordinary.stable if matrix.abis.ordinary else None
    if oldest is None:
        return
    if oldest not in torch_releases():
        yield ("abis", "ordinary", "stable"), _unknown_torch(oldest)
        return
    for minor in matrix.torch:
        if version_numbers(minor) < version_numbers(oldest):
            yield (
                ("torch", minor),
                f"is older than {oldest}, whose stable ABI the project keeps to (abis.ordinary); "
                "take it out",
            )


def pairs_possible(matrix: Matrix) -> Iterator[Fault]:
    """Each torch release was published for the toolkits and Pythons it lists."""
    for minor, release in matrix.torch.items():
        path: KeyPath = ("torch", minor)
        known = torch_releases().get(minor)
        if known is None:
            yield path, _unknown_torch(minor)
            continue
        for i, python in enumerate(release.pythons):
            if python not in known.pythons:
                yield (
                    (*path, "pythons", i),
                    f"torch {minor} has no build for Python {python}; "
                    f"it has {join_names(known.pythons)}",
                )
        for i, name in enumerate(release.toolkits):
            toolkit = matrix.toolkits.get(name)
            if toolkit is None:
                yield (
                    (*path, "toolkits", i),
                    f"no toolkit {quote(name)}; {nearest(name, matrix.toolkits)}",
                )
            elif text := _torch_lacks(minor, known, name, toolkit):
                yield (*path, "toolkits", i), text
            elif not _serves(matrix, minor, toolkit):
                yield (
                    (*path, "toolkits", i),
                    f"{name} has nothing for torch {minor}: its abis are "
                    f"{join_names(toolkit.abis)}, and stable begins with a later torch"
                    if toolkit.abis
                    else f"{name} has no wheels of its own: its abis are empty",
                )


def universal_possible(matrix: Matrix) -> Iterator[Fault]:
    """The universal wheel has toolkits of the matrix, and front ends for known torch releases."""
    universal, stable = matrix.abis.universal, matrix.abis.stable
    if universal is None:
        return
    path: KeyPath = ("abis", "universal")
    if stable is None:
        yield path, 'needs the stable flavour; expected e.g. stable: {torch: "2.11"} under abis'
        return
    for i, name in enumerate(universal.toolkits):
        if name not in matrix.toolkits:
            yield (
                (*path, "toolkits", i),
                f"no toolkit {quote(name)}; {nearest(name, matrix.toolkits)}",
            )
    for i, minor in enumerate(universal.torch):
        if minor not in torch_releases():
            yield (*path, "torch", i), _unknown_torch(minor)
        elif version_numbers(minor) >= version_numbers(stable.torch):
            yield (
                (*path, "torch", i),
                f"torch {minor} is served by the stable front end (from {stable.torch} on)",
            )


_UNIVERSAL: KeyPath = ("abis", "universal")


def labels_complete(matrix: Matrix) -> Iterator[Fault]:
    """Each toolkit of the universal wheel is in a label, or said to be in none."""
    universal = matrix.abis.universal
    if universal is None or not (universal.labels or universal.unlabelled):
        return
    named = [(("labels", label), names) for label, names in universal.labels.items()]
    for key, names in (*named, (("unlabelled",), universal.unlabelled)):
        yield from _duplicates((*_UNIVERSAL, *key), names)
        for i, name in enumerate(names):
            if name not in universal.toolkits:
                says = f"{quote(name)} gives the universal wheel no kernels"
                yield (*_UNIVERSAL, *key, i), f"{says}; {nearest(name, universal.toolkits)}"
    labelled = {name for names in universal.labels.values() for name in names}
    for name in universal.toolkits:
        if (name in labelled) == (name in universal.unlabelled):
            says = "has a label and is unlabelled" if name in labelled else "has no label"
            expected = "expected it in a label, or under unlabelled"
            yield (*_UNIVERSAL, "labels"), f"{name} {says}; {expected}"


def labels_clear(matrix: Matrix) -> Iterator[Fault]:
    """A label is for one kind of machine, and no machine fits two labels equally."""
    labels = matrix.abis.universal.labels if matrix.abis.universal else {}
    first: dict[tuple[str, str], str] = {}
    for label, names in labels.items():
        path: KeyPath = (*_UNIVERSAL, "labels", label)
        if (label == NULL) == bool(names):
            expected = "no toolkit" if names else f'a toolkit, which the label "{NULL}" alone lacks'
            yield path, f"expected {expected}, found {join_names(names) or 'none'}"
        if label == NULL and matrix.abis.pure is None:
            yield path, "is the pure wheel; expected e.g. pure: {torch: ...} under abis"
        toolkits = [matrix.toolkits[name] for name in names if name in matrix.toolkits]
        needs = sorted(set(map(_needs_of, toolkits)))
        if len(needs) > 1:
            yield path, f"expected toolkits for one kind of machine, found {join_names(needs)}"
            continue
        machines = {(needs[0], value) for own in toolkits for value in arch_values(own.archs)}
        if shared := sorted(machine for machine in machines if machine in first):
            other, (need, value) = first[shared[0]], shared[0]
            says = f"fits a machine of {need} and {value} as well as {quote(other)} does"
            yield path, f"{says}; expected one label for both"
        first |= dict.fromkeys(machines, label)


def _needs_of(toolkit: ToolkitSection) -> str:
    """The driver that a toolkit's kernels need."""
    if toolkit.backend == "rocm":
        return BRANDS["rocm"]
    return f"CUDA {driver_bound(toolkit.version, toolkit.archs)}"


def _unknown_torch(minor: str) -> str:
    known = join_names(torch_releases())
    return f"torch {minor} is not known; known: {known} (a newer torchwheel may know it)"


def _torch_lacks(minor: str, known: TorchFacts, name: str, toolkit: ToolkitSection) -> str | None:
    majors = known.majors(toolkit.backend)
    major = version_numbers(toolkit.version)[0]
    if major in majors:
        return None
    backend = BRANDS[toolkit.backend]
    has = f"it has {backend} {join_names(map(str, majors))}" if majors else "it has none of it"
    return f"torch {minor} has no build for {backend} {major} ({name}); {has}"


def _serves(matrix: Matrix, minor: str, toolkit: ToolkitSection) -> bool:
    floor = matrix.abis.stable
    if not toolkit.abis:
        return False
    if (
        {"aten", "ordinary"} & set(toolkit.abis)
        or floor is None
        or floor.torch not in torch_releases()
    ):
        return True  # another rule reports the floor
    return version_numbers(minor) >= version_numbers(floor.torch)


RULES: tuple[MatrixRule, ...] = (
    no_duplicates,
    ordinary_alone,
    toolkits_exist,
    built_once,
    source_possible,
    smoke_declared,
    abis_declared,
    toolkits_possible,
    archs_read_by_torch,
    torches_known,
    pairs_possible,
    universal_possible,
    labels_complete,
    labels_clear,
    runners_complete,
)
