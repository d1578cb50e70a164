"""What a project of somebody else says of itself, read from its files; nothing of it is run."""

import ast
import dataclasses
import itertools
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel.project_links import own_paths
from torchwheel.scaffold.build_script import (
    ARCH_LIST,
    QUESTION,
    SETUP,
    BuildScript,
    BuildVariable,
    Mention,
    each_once,
    imported_modules,
    read_limited,
    read_setup,
)
from torchwheel.scaffold.declared import (
    CONFIG,
    PKG_INFO,
    PYPROJECT,
    DeclaredMetadata,
    read_declared_metadata,
    requirements,
)
from torchwheel_runtime.errors import UsageError

CMAKE = "CMakeLists.txt"
_CMAKE_VARIABLE = re.compile(r"\bENV\{(\w+)\}")
# set(CMAKE_CUDA_ARCHITECTURES 80), set_target_properties(… CUDA_ARCHITECTURES 80)
_SETS_ARCHS = re.compile(
    rf"^\s*set\w*\s*\([^#]*\b((CMAKE_)?CUDA_ARCHITECTURES|{ARCH_LIST})\b", re.IGNORECASE
)
_SCIKIT_BUILD = "scikit_build_core"
# Modules that a build environment has anyway.
_GIVEN = frozenset({"torch", "setuptools", "pkg_resources", "distutils", "_distutils_hack"})
# Distributions of modules that build scripts and tests import, where the names differ or agree. The
# name of a module alone is no proof of a distribution's: anybody may own it.
_DISTRIBUTIONS: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("cmake", "einops", "ninja", "numpy", "packaging", "parameterized", "psutil"),
            *("pybind11", "pytest", "scipy", "tqdm", "wheel"),
        )
    },
    "Cython": "cython",
    "yaml": "pyyaml",
}
_NO_PACKAGES = frozenset(
    {
        *("bench", "benchmark", "benchmarks", "build", "csrc", "dist", "doc", "docs", "example"),
        *("examples", "scripts", "src", "test", "tests", "tools"),
    }
)
_TESTS = ("tests", "test")
_MOST_TEST_FILES = 500


@dataclasses.dataclass(frozen=True)
class ForeignProject:
    """A project, as its files describe it.

    Attributes:
        declared: the metadata that it declares.
        script: what its setup.py and its CMake file name.
        build_requires: what the build needs that the project does not declare.
        imports: its top packages, or its modules.
        tests: the folder of its tests.
        test_requires: what they import, beside torch and pytest.
        cuda: whether it has CUDA sources.
        cmake: whether CMake compiles them.
        todo: what a person must look up or fill in, each with its place.
    """

    declared: DeclaredMetadata
    script: BuildScript
    build_requires: tuple[str, ...]
    imports: tuple[str, ...]
    tests: str | None
    test_requires: tuple[str, ...]
    cuda: bool
    cmake: bool
    todo: tuple[str, ...]


def read_project(folder: Path, name: str = "") -> ForeignProject:
    """Read a project's folder.

    Args:
        folder: the project's.
        name: the distribution's; what its files say if empty.

    Raises:
        UsageError: it is none, or a file of it cannot be read.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected the folder of a project, found none")
    own_paths(folder, _files_to_read(folder))
    script = read_setup(folder)
    declared = read_declared_metadata(folder, script, name)
    by_setup = any("CMake" in one.kind for one in script.extensions)
    cmake = by_setup or declared.backend.startswith(_SCIKIT_BUILD)
    if cmake:
        script = search_cmake(script, folder)
    known = [*declared.requires, *declared.extras]
    imports = _imports(folder, script, declared)
    needs, odd_needs = _distributions(
        [one for one in script.modules if not _is_local(folder, one)],
        [*declared.build_requires, *known],
    )
    if script.ninja and any("CMake" not in one.kind for one in script.extensions):
        needs = sorted({*needs, "ninja"})
    have = {canonicalize_name(one.name) for one in requirements(declared.build_requires)}
    tests = next((one for one in _TESTS if _has_tests(folder / one)), None)
    test_modules = _test_modules(folder / tests) if tests else set()
    test_needs, odd_tests = _distributions(
        sorted(test_modules - {"torch", "pytest", *imports}), known
    )
    todo = [
        *script.todo,
        *(f"setup.py imports {one}: add its distribution to build.requires" for one in odd_needs),
        *(f"{tests} imports {one}: add its distribution to smoke.requires" for one in odd_tests),
        *declared.todo,
        *([] if imports else ["no package was found: fill in build.imports"]),
        *_todo_of_facts(script, declared),
    ]
    return ForeignProject(
        declared=declared,
        script=script,
        build_requires=tuple(one for one in needs if canonicalize_name(one) not in have),
        imports=imports,
        tests=tests,
        test_requires=tuple(test_needs),
        cuda=any(one.kind == "CUDAExtension" for one in script.extensions) or _has_cuda(folder),
        cmake=cmake,
        todo=tuple(dict.fromkeys(todo)),
    )


def search_cmake(script: BuildScript, folder: Path) -> BuildScript:
    """`script`, and what the lines of the project's CMake file name."""
    file = folder / CMAKE
    try:
        lines = read_limited(file).decode().splitlines() if file.is_file() else []
    except (OSError, ValueError):
        lines = []  # CMake itself will say so.
    variables, questions, todo = [*script.variables], [*script.questions], [*script.todo]
    own_archs = script.own_archs
    for number, line in enumerate(lines, start=1):
        place, code = f"{CMAKE}:{number}", line.partition("#")[0]
        variables += (BuildVariable(one, place) for one in _CMAKE_VARIABLE.findall(code))
        questions += (Mention(one, place) for one in QUESTION.findall(code))
        if found := _SETS_ARCHS.match(line):
            own_archs = True
            todo.append(f"{place}: sets {found[1]}; nvcc gets the matrix's archs instead")
    return dataclasses.replace(
        script,
        variables=each_once(variables),
        questions=tuple(questions),
        own_archs=own_archs,
        todo=tuple(todo),
    )


def _todo_of_facts(script: BuildScript, declared: DeclaredMetadata) -> Iterator[str]:
    for question in script.questions:
        yield (
            f"{question.place}: asks {question.name}, and builds have no GPU; set in "
            "build.environment what makes it compile anyway"
        )
    for variable in script.variables:
        if variable.forces and variable.is_guess:
            yield f"{variable.place}: {variable.name} is set to 1; check that this turns it on"
    if declared.tag.python != "each":
        return
    for extension in script.extensions:
        if extension.limited_api:
            yield (
                f"{extension.place}: an extension keeps to the limited API, but its wheel is "
                "tagged for one Python; for a wheel that serves all, write python: abi3 and, under "
                "build, config_settings: {--build-option: --py-limited-api=cp3X}"
            )


def _files_to_read(folder: Path) -> Iterator[Path]:
    """The files that are read here, whether git lists them or not."""
    yield from (folder / one for one in (PYPROJECT, SETUP, CONFIG, PKG_INFO, CMAKE))
    for tests in (folder / one for one in _TESTS):
        yield tests
        yield from itertools.islice(_test_files(tests), _MOST_TEST_FILES)


def _imports(folder: Path, script: BuildScript, declared: DeclaredMetadata) -> tuple[str, ...]:
    tops = {one.partition(".")[0] for one in declared.packages}
    for place in (declared.where, ".", "src"):
        tops = tops or set(_top_packages(folder / place))
    if not tops:
        tops = {one.name.partition(".")[0] for one in script.extensions if one.name}
    return tuple(sorted(one for one in tops if one.isidentifier()))


def _top_packages(folder: Path) -> Iterator[str]:
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name.lower() not in _NO_PACKAGES and (path / "__init__.py").is_file():
                yield path.name


def _is_local(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


def _distributions(modules: Iterable[str], declared: Iterable[str]) -> tuple[list[str], list[str]]:
    """The distributions of modules, by what the project declares or is well known; and the rest."""
    names = {canonicalize_name(one.name) for one in requirements(declared)}
    found: set[str] = set()
    unknown: list[str] = []
    for module in modules:
        if module in _GIVEN:
            continue
        if canonicalize_name(module) in names:
            found.add(canonicalize_name(module))
        elif module in _DISTRIBUTIONS:
            found.add(_DISTRIBUTIONS[module])
        else:
            unknown.append(module)
    return sorted(found), unknown


def _has_tests(folder: Path) -> bool:
    return folder.is_dir() and next(_test_files(folder), None) is not None


def _test_files(folder: Path) -> Iterator[Path]:
    for pattern in ("test_*.py", "*_test.py"):
        yield from folder.rglob(pattern)


def _test_modules(folder: Path) -> set[str]:
    """The modules that the tests import; those that lie beside them are left out."""
    found: set[str] = set()
    for number, file in enumerate(_test_files(folder)):
        if number >= _MOST_TEST_FILES:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(read_limited(file))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # The tests themselves will say so.
        found.update(*map(imported_modules, ast.walk(tree)))
    own = {path.stem for path in folder.iterdir()} | {folder.name}
    return found - own - set(sys.stdlib_module_names)


def _has_cuda(folder: Path) -> bool:
    return next(folder.rglob("*.cu"), None) is not None
