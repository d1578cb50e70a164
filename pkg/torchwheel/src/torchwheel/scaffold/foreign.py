"""What a project of somebody else says of itself, read from its files; nothing of it is run."""

import ast
import dataclasses
import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel.inspect.build_script import BuildScript, BuildVariable
from torchwheel.inspect.project_scripts import read_limited, read_scripts
from torchwheel.inspect.setup_search import imported_modules
from torchwheel.project_links import own_paths
from torchwheel.scaffold.declared import (
    CONFIG,
    PKG_INFO,
    DeclaredMetadata,
    read_declared_metadata,
    requirements,
)
from torchwheel_runtime.errors import UsageError

_TORCHS = frozenset({"CUDAExtension", "CppExtension", "SyclExtension"})
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
        script: what its build scripts name.
        build_requires: what the build needs that the project does not declare.
        imports: its top packages, or its modules.
        tests: the folder of its tests.
        test_requires: what they import, beside torch and pytest.
        cuda: whether it has CUDA sources.
        todo: what a person must look up or fill in, each with its place.
    """

    declared: DeclaredMetadata
    script: BuildScript
    build_requires: tuple[str, ...]
    imports: tuple[str, ...]
    tests: str | None
    test_requires: tuple[str, ...]
    cuda: bool
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
    script = read_scripts(folder)
    declared = read_declared_metadata(folder, script, name)
    known = [*declared.requires, *declared.extras]
    imports = _imports(folder, script, declared)
    foreign = [
        one
        for one in script.modules
        if not (folder / one).is_dir() and not (folder / f"{one}.py").is_file()
    ]
    needs, odd_needs = _distributions(foreign, [*declared.build_requires, *known])
    if script.ninja and any(one.kind in _TORCHS for one in script.extensions):
        needs = sorted({*needs, "ninja"})
    have = {canonicalize_name(one.name) for one in requirements(declared.build_requires)}
    tests = next((one for one in _TESTS if any(_test_files(folder / one))), None)
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
        cuda=any(one.kind == "CUDAExtension" for one in script.extensions)
        or any(folder.rglob("*.cu")),
        todo=tuple(dict.fromkeys(todo)),
    )


def _todo_of_facts(script: BuildScript, declared: DeclaredMetadata) -> Iterator[str]:
    for question in script.questions:
        if not question.answer:
            yield (
                f"{question.place}: asks {question.name}, and builds have no GPU; set in "
                "build.environment what makes it compile anyway"
            )
    for variable in script.variables:
        if text := _todo_of_variable(variable):
            yield f"{variable.place}: {text}"
    if declared.tag.python != "each":
        return
    for extension in script.extensions:
        if extension.limited_api:
            yield (
                f"{extension.place}: an extension keeps to the limited API, but its wheel is "
                "tagged for one Python; for a wheel that serves all, write python: abi3 and, under "
                "build, config_settings: {--build-option: --py-limited-api=cp3X}"
            )


def _todo_of_variable(variable: BuildVariable) -> str:
    """What a person must look up about a variable; empty for nothing."""
    name = variable.name
    if variable.is_set:
        check = f"{name} is set to {variable.on}; check that this turns it on"
        return check if variable.is_guess else ""
    if not variable.is_switch:
        return ""
    may = "name the archs" if variable.names_archs else "leave kernels out"
    where = {
        "environment": f"{name} in build.environment",
        "CMake": f"-D{name}=… in CMAKE_ARGS of build.environment",
        "argument": f"under build: config_settings: {{--global-option: {name}}}",
    }
    return f"{name} may {may}; if so, write {where[variable.given]}"


def _files_to_read(folder: Path) -> Iterator[Path]:
    """The files that are read here, whether git lists them or not."""
    yield from (folder / one for one in (CONFIG, PKG_INFO))
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


def _distributions(modules: Iterable[str], declared: Iterable[str]) -> tuple[list[str], list[str]]:
    """The distributions of modules, by what the project declares or is well known; and the rest.

    What the project takes from an address is among the rest: an index may have another by its name.
    """
    names = {canonicalize_name(one.name) for one in requirements(declared) if not one.url}
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
