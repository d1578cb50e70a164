"""The build scripts of a project: setup.py, the modules of the project that it loads, CMake files.

Nothing of them is run.
"""

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from torchwheel.inspect.build_script import (
    ARCH_LIST,
    QUESTION,
    SETUP,
    BuildScript,
    BuildVariable,
    Mention,
    Question,
    merge,
    stable_target,
)
from torchwheel.inspect.setup_search import search_setup
from torchwheel.project_links import own_paths
from torchwheel.text_files import exists, read_toml
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import NotRegularError, open_regular

CMAKE, PYPROJECT = "CMakeLists.txt", "pyproject.toml"
LARGEST = 1 << 20
_MOST_FILES = 50
_BY_CMAKE = ("scikit_build_core", "py_build_cmake")
_CMAKE_MODULES = frozenset({"skbuild"})


def read_scripts(folder: Path) -> BuildScript:
    """Read the build scripts of a project, which may have none.

    Raises:
        UsageError: setup.py cannot be read, or is not Python; a script is a link out of the folder.
    """
    own_paths(folder, [folder / name for name in (SETUP, PYPROJECT, CMAKE)])
    script = search_setup(read_own(folder / SETUP, "a build script"), str(folder / SETUP))
    backend = _backend(folder)
    todo: list[BuildScript] = []
    seen = {SETUP}
    waiting = [*script.loads, *_own_backend(backend)]
    while waiting and len(seen) < _MOST_FILES:
        name = _inside(waiting.pop(0))
        if name is None or name in seen or not (folder / name).is_file():
            continue
        seen.add(name)
        own_paths(folder, [folder / name])
        found = _search_module(folder, name)
        todo.append(found)
        waiting += found.loads
    script = merge(script, todo)
    named = str(backend.get("build-backend", ""))
    by_cmake = (
        named.startswith(_BY_CMAKE)
        or not _CMAKE_MODULES.isdisjoint(script.modules)
        or any("CMake" in one.kind for one in script.extensions)
    )
    calls_cmake = script.cmake and not by_cmake
    unknown = not script.extensions  # so CMake may compile it
    files = _cmake_files(folder, deep=calls_cmake) if by_cmake or calls_cmake or unknown else []
    if script.cmake and (by_cmake or files) and not named.startswith(_BY_CMAKE):
        script = dataclasses.replace(
            script, modules=tuple(sorted({*script.modules, "cmake", "ninja"}))
        )
    # A setup.py that calls CMake gives it the options itself.
    options = by_cmake and not any("CMake" in one.kind for one in script.extensions)
    script = merge(script, (_search_cmake(folder, name, options=options) for name in files))
    return dataclasses.replace(script, cmake=by_cmake or (calls_cmake and bool(files)))


_MOST_SAID = 5


def why_empty(folder: Path) -> str:
    """Why a build of a project may have compiled no kernel: what its scripts ask for."""
    try:
        switches = list(read_scripts(folder).switches)
    except UsageError:
        switches = []
    more = f"; and {len(switches) - _MOST_SAID} more" if len(switches) > _MOST_SAID else ""
    cause = "; ".join(switches[:_MOST_SAID]) or "its build scripts name no switch for it"
    return f"no .cu was compiled: {cause}{more}"


def _backend(folder: Path) -> dict[str, object]:
    """The table build-system of pyproject.toml; empty if there is none that can be read."""
    try:
        tables = read_toml(folder / PYPROJECT) if exists(folder / PYPROJECT) else {}
    except UsageError:
        return {}  # Who needs it says so.
    table = tables.get("build-system")
    return table if isinstance(table, dict) else {}


def _own_backend(table: dict[str, object]) -> Iterator[str]:
    """The files of a build backend that the project brings itself."""
    folders = table.get("backend-path")
    module = str(table.get("build-backend", "")).partition(":")[0].replace(".", "/")
    for one in folders if isinstance(folders, list) else []:
        if isinstance(one, str) and module:
            yield from (f"{one}/{module}.py", f"{one}/{module}/__init__.py")


def _inside(name: str) -> str | None:
    """A path of a script below its project, normalised; None for one that leads out."""
    path = PurePosixPath(name)
    return None if path.is_absolute() or ".." in path.parts or "\0" in name else str(path)


def _search_module(folder: Path, name: str) -> BuildScript:
    try:
        return search_setup(read_own(folder / name, "Python"), str(folder / name), name)
    except UsageError:
        return BuildScript({}, {}, todo=(f"{name}: could not be read; look it up",))


_SUBFOLDER = re.compile(r"\b(?:add_subdirectory|include)\s*\(\s*([\w./-]+)", re.IGNORECASE)


def _cmake_files(folder: Path, *, deep: bool) -> list[str]:
    """The CMake file of a project, and those that it includes, by their paths.

    With `deep` also those one folder down: setup.py says which it takes.
    """
    found = {CMAKE: None} if (folder / CMAKE).is_file() else {}
    if deep or not found:
        below = sorted(folder.glob(f"*/{CMAKE}"))
        found |= dict.fromkeys(str(path.relative_to(folder)) for path in below)
    waiting = list(found)
    while waiting and len(found) < _MOST_FILES:
        file = waiting.pop(0)
        own_paths(folder, [folder / file])
        for name in _SUBFOLDER.findall(_cmake_text(folder / file)):
            for path in (f"{name}/{CMAKE}", name):
                inside = _inside(str(PurePosixPath(file).parent / path))
                if inside and inside not in found and (folder / inside).is_file():
                    found[inside] = None
                    waiting.append(inside)
    return list(found)


def _cmake_text(file: Path) -> str:
    """The text of a CMake file without comments; empty if it cannot be read: CMake will say so."""
    try:
        text = read_limited(file).decode()
    except (OSError, ValueError):
        return ""
    return _QUOTED_OR_COMMENT.sub(lambda found: found[1] or "", text)


_QUOTED_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|#[^\n]*', re.DOTALL)
_CMAKE_VARIABLE = re.compile(r"\bENV\{(\w+)\}")
# option(WITH_CUDA "help" OFF), set(BACKEND "cpu" CACHE STRING "help")
_OPTION = re.compile(r'\boption\s*\(\s*(\w+)\s+(?:"[^"]*"|\w+)\s*(\w*)\s*\)', re.IGNORECASE)
_CACHED = re.compile(r'\bset\s*\(\s*(\w+)\s+"?([^"\s()]*)"?\s+CACHE\b', re.IGNORECASE)
_CHOICES = re.compile(r"\bCACHE\s+(\w+)\s+PROPERTY\s+STRINGS\s+([^)]*)\)", re.IGNORECASE)
# set(CMAKE_CUDA_ARCHITECTURES 80), set_target_properties(… CUDA_ARCHITECTURES 80)
_SETS_ARCHS = re.compile(
    rf"^\s*(?:set\w*|list)\s*\([^()]*?(?<![{{\w])((?:CMAKE_)?CUDA_ARCHITECTURES|{ARCH_LIST})\b",
    re.IGNORECASE | re.MULTILINE,
)


def _search_cmake(folder: Path, name: str, *, options: bool) -> BuildScript:
    """What a CMake file of the project names; with `options` those that a user gives, too."""
    text = _cmake_text(folder / name)

    def place(found: re.Match[str]) -> str:
        return f"{name}:{text.count(chr(10), 0, found.start(1)) + 1}"

    choices = {one[1]: tuple(one[2].replace('"', "").split()) for one in _CHOICES.finditer(text)}
    archs = list(_SETS_ARCHS.finditer(text))
    return BuildScript(
        {},
        {},
        own_archs=bool(archs),
        variables=(
            *(BuildVariable(one[1], place(one)) for one in _CMAKE_VARIABLE.finditer(text)),
            *(
                BuildVariable(one[1], place(one), one[2] or "OFF", given="CMake")
                for one in (_OPTION.finditer(text) if options else ())
            ),
            *(
                BuildVariable(one[1], place(one), one[2], choices.get(one[1], ()), given="CMake")
                for one in (_CACHED.finditer(text) if options else ())
            ),
        ),
        questions=tuple(Question(one[1], place(one)) for one in QUESTION.finditer(text)),
        stable=Mention(minor, name) if (minor := stable_target(text)) else None,
        todo=tuple(
            f"{place(one)}: sets {one[1]}; nvcc gets the matrix's archs instead" for one in archs
        ),
    )


def read_own(file: Path, kind: str) -> bytes:
    """The content of a file of the project, which is to be of a kind; empty if there is none."""
    try:
        return read_limited(file) if file.exists() else b""
    except OSError as error:
        raise UsageError(explain(error)) from error
    except ValueError as error:
        raise UsageError(f"{file}: expected {kind}, found {error}") from error


def read_limited(file: Path) -> bytes:
    """The content of a file of a foreign project.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, or no regular file.
    """
    try:
        handle = open_regular(file)
    except NotRegularError:
        raise ValueError("something that is no file") from None
    with os.fdopen(handle, "rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return content
