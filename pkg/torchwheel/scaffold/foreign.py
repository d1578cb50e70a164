"""What a project of somebody else says of itself, read from its files; nothing of it is run."""

import ast
import configparser
import dataclasses
import itertools
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.errors import UsageError
from torchwheel.files import own_paths
from torchwheel.os_errors import explain
from torchwheel.scaffold.setup_facts import NAME, SetupFacts
from torchwheel.scaffold.setup_script import read_limited, read_setup
from torchwheel.scaffold.wheel_tag import WheelTag, tag_of_project
from torchwheel.text import escape
from torchwheel.text_files import exists, read_toml
from torchwheel.versions import has_long_number, is_specifier

_SETUPTOOLS, _SCIKIT_BUILD = "setuptools.build_meta", "scikit_build_core"
_CMAKE = "CMakeLists.txt"
# set(CMAKE_CUDA_ARCHITECTURES 80), set_target_properties(… CUDA_ARCHITECTURES 80)
_SETS_ARCHS = re.compile(
    r"^\s*set\w*\s*\([^#]*\b((CMAKE_)?CUDA_ARCHITECTURES|TORCH_CUDA_ARCH_LIST)\b", re.IGNORECASE
)
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
        name: the distribution's.
        setup: what its setup.py says.
        tag: the Pythons that one of its wheels serves.
        backend: its build backend.
        build_requires: what the build needs that the project does not declare.
        imports: its top packages, or its modules.
        tests: the folder of its tests.
        test_requires: what they import, beside torch and pytest.
        torch: the range of torch that it wants.
        python: the range of Python.
        cuda: whether it has CUDA sources.
        cmake: whether CMake compiles them.
        own_archs: whether its files set the archs, so that the environment does not decide.
        notes: what could not be read, and what to do.
    """

    name: str
    setup: SetupFacts
    tag: WheelTag
    backend: str
    build_requires: tuple[str, ...]
    imports: tuple[str, ...]
    tests: str | None
    test_requires: tuple[str, ...]
    torch: SpecifierSet
    python: SpecifierSet
    cuda: bool
    cmake: bool
    own_archs: bool
    notes: tuple[str, ...]


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
    pyproject = _pyproject(folder / "pyproject.toml")
    if pyproject is None and not (folder / "setup.py").is_file():
        raise UsageError(f"{folder}: expected a setup.py or a pyproject.toml, found neither")
    tables = pyproject or {}
    setup, config = read_setup(folder), _config(folder / "setup.cfg")
    project, build = _table(tables, "project"), _table(tables, "build-system")
    notes = [str(one) for one in setup.unread]
    declared = _texts(build.get("requires"))
    requires = [*setup.requires, *_texts(project.get("dependencies"))]
    extras = [*setup.extras, *_texts(list(_table(project, "optional-dependencies").values()))]
    imports = _imports(folder, setup, tables)
    needs, unknown = _distributions(
        [one for one in setup.modules if not _is_local(folder, one)],
        [*declared, *requires, *extras],
    )
    notes += [f"setup.py imports {one}: add its distribution to build.requires" for one in unknown]
    if setup.extensions and setup.ninja and any("CMake" not in e.kind for e in setup.extensions):
        needs = sorted({*needs, "ninja"})
    have = {canonicalize_name(one.name) for one in _requirements(declared)}
    tests = next((one for one in _TESTS if _has_tests(folder / one)), None)
    test_modules = _test_modules(folder / tests) if tests else set()
    test_needs, unknown = _distributions(
        sorted(test_modules - {"torch", "pytest", *imports}), [*requires, *extras]
    )
    notes += [f"{tests} imports {one}: add its distribution to smoke.requires" for one in unknown]
    tag, unknown = tag_of_project(setup.limited_api, setup.command_tag, config, tables)
    notes += unknown
    if tag.python == "each":
        notes += [
            f"{NAME}:{one.line}: an extension keeps to the limited API, but its wheel is tagged "
            "for one Python; for a wheel that serves all, write python: abi3 and, under build, "
            "config_settings: {--build-option: --py-limited-api=cp3X}"
            for one in setup.extensions
            if one.limited_api
        ]
    backend = str(build.get("build-backend", _SETUPTOOLS))
    in_cmake = any("CMake" in one.kind for one in setup.extensions)
    cmake = in_cmake or backend.startswith(_SCIKIT_BUILD)
    sets_archs = list(_cmake_archs(folder / _CMAKE)) if cmake else []
    notes += sets_archs
    return ForeignProject(
        name=_name(folder, setup, config, {**project, "name": name or project.get("name")}),
        setup=setup,
        tag=tag,
        backend=backend,
        build_requires=tuple(one for one in needs if canonicalize_name(one) not in have),
        imports=imports,
        tests=tests,
        test_requires=tuple(test_needs),
        torch=_torch(requires),
        python=_range(project.get("requires-python") or setup.python or ""),
        cuda=any(one.kind == "CUDAExtension" for one in setup.extensions) or _has_cuda(folder),
        cmake=cmake,
        own_archs=setup.own_archs or bool(sets_archs),
        notes=tuple(dict.fromkeys(notes)),
    )


def _files_to_read(folder: Path) -> Iterator[Path]:
    """The files that are read here, whether git lists them or not."""
    yield from (folder / one for one in ("pyproject.toml", NAME, "setup.cfg", "PKG-INFO", _CMAKE))
    for tests in (folder / one for one in _TESTS):
        yield tests
        yield from itertools.islice(_test_files(tests), _MOST_TEST_FILES)


def _pyproject(file: Path) -> Mapping[str, Any] | None:
    return read_toml(file) if exists(file) else None


def _config(file: Path) -> configparser.RawConfigParser:
    """setup.cfg; an empty one where there is none."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        if file.exists():
            parser.read_string(_text(file))
    except OSError as error:
        raise UsageError(explain(error)) from error
    except (ValueError, configparser.Error) as error:
        reason = escape(str(error).splitlines()[0])
        raise UsageError(f"{file}: expected an INI file, found {reason}") from error
    return parser


def _text(file: Path) -> str:
    return read_limited(file).decode("utf-8")


def _name(
    folder: Path,
    setup: SetupFacts,
    config: configparser.RawConfigParser,
    project: Mapping[str, Any],
) -> str:
    own = project.get("name") or setup.name or config.get("metadata", "name", fallback=None)
    if not own and (folder / "PKG-INFO").is_file():
        found = re.search(r"^Name: (\S+)$", _text(folder / "PKG-INFO"), re.MULTILINE)
        own = found and found[1]
    if not isinstance(own, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", own):
        raise UsageError(
            f"{folder}: expected the project's name in pyproject.toml or setup(), found none that "
            "is spelled out; pass --name"
        )
    return canonicalize_name(own)


def _imports(folder: Path, setup: SetupFacts, tables: Mapping[str, Any]) -> tuple[str, ...]:
    listed = _table(_table(_table(tables, "tool"), "setuptools"), "packages")
    names = setup.packages or (_texts(listed) if not isinstance(listed, dict) else ())
    tops = {one.partition(".")[0] for one in names}
    if not tops:
        tops = set(_top_packages(folder / setup.where)) or set(_top_packages(folder / "src"))
    if not tops:
        tops = {one.name.partition(".")[0] for one in setup.extensions if one.name}
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
    names = {canonicalize_name(one.name) for one in _requirements(declared)}
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
                tree = ast.parse(_text(file))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # The tests themselves will say so.
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(one.name.partition(".")[0] for one in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    own = {path.stem for path in folder.iterdir()} | {folder.name}
    return found - own - set(sys.stdlib_module_names)


def _has_cuda(folder: Path) -> bool:
    return next(folder.rglob("*.cu"), None) is not None


def _cmake_archs(file: Path) -> Iterator[str]:
    """Lines of the project's CMake file that set archs themselves."""
    try:
        lines = _text(file).splitlines() if file.is_file() else []
    except (OSError, ValueError):
        lines = []  # CMake itself will say so.
    for number, line in enumerate(lines, start=1):
        if found := _SETS_ARCHS.match(line):
            yield f"{file.name}:{number}: sets {found[1]}; nvcc gets the matrix's archs instead"


def _requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    for text in texts:
        try:
            if not has_long_number(text):
                yield Requirement(text)
        except InvalidRequirement:
            continue


def _torch(requires: Iterable[str]) -> SpecifierSet:
    ranges = [one.specifier for one in _requirements(requires) if one.name == "torch"]
    return ranges[0] if ranges else SpecifierSet()


def _range(text: object) -> SpecifierSet:
    return SpecifierSet(text) if isinstance(text, str) and is_specifier(text) else SpecifierSet()


def _table(content: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - foreign TOML
    found = content.get(name, {})
    return found if isinstance(found, dict) or name == "packages" else {}


def _texts(value: object) -> list[str]:
    """The texts of a list, and of the lists in it."""
    if isinstance(value, str):
        return [value]
    return [text for one in value for text in _texts(one)] if isinstance(value, list) else []
