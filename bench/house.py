"""Size of the two distributions and their tests, and what the simplest variant runs through.

    nox -s bench -- house [--traced]

`--traced` also builds the variant `pure` of this project into an empty folder, with smoke tests,
and counts the functions and modules of the two distributions that the run enters in this process.
"""

import argparse
import ast
import collections
import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from torchwheel.cli import main as torchwheel
from torchwheel_runtime.text import table_rows

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    name: ROOT / "pkg" / name / "src" / name for name in ("torchwheel", "torchwheel_runtime")
}
SMALL = 40
"""A module with fewer lines that one other imports could belong into that other."""


def modules(folder: Path) -> dict[str, Path]:
    """The modules of a folder of sources, by their dotted name."""
    return {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
    }


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def types_of(path: Path) -> Iterator[str]:
    """The names of the classes of a module that another module can use."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, of modules and of what is in them."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each package, for both, and for the tests."""
    yield "", "lines", "modules", "mean", "types"
    both = {name: modules(folder) for name, folder in PACKAGES.items()}
    for name, found in (
        *both.items(),
        ("both", {k: v for m in both.values() for k, v in m.items()}),
    ):
        total = sum(map(lines, found.values()))
        types = sum(len(list(types_of(path))) for path in found.values())
        yield name, f"{total}", f"{len(found)}", f"{total / len(found):.0f}", f"{types}"
    tests = modules(ROOT / "tests")
    total = sum(map(lines, tests.values()))
    yield "tests", f"{total}", f"{len(tests)}", f"{total / len(tests):.0f}", ""


def notes() -> Iterator[str]:
    """Names that two types share, and small modules with one importer."""
    every = {k: v for folder in PACKAGES.values() for k, v in modules(folder).items()}
    names = collections.Counter(name for path in every.values() for name in types_of(path))
    yield from (f"two types are named {name}" for name, count in names.items() if count > 1)
    users = collections.Counter(
        name for path in every.values() for name in set(imported(path)) if name in every
    )
    for name, path in every.items():
        if path.name != "__init__.py" and lines(path) < SMALL and users[name] == 1:
            yield f"{name} has {lines(path)} lines and one importer"


def traced(command: list[str]) -> tuple[int, int]:
    """The functions and the modules of the two distributions that a command enters."""
    entered: set[tuple[str, int]] = set()
    folders = tuple(f"{folder}{os.sep}" for folder in PACKAGES.values())

    def enter(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # A class's body is run too, when its module is imported.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(folders):
            entered.add((code.co_filename, code.co_firstlineno))

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        status = torchwheel(command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    if status:
        raise SystemExit(status)
    return len(entered), len({name for name, _ in entered})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traced", action="store_true", help="build `pure` under a profiler")
    options = parser.parse_args()
    for row in table_rows("< > > > >", list(rows())):
        print(row)
    for note in notes():
        print(note)
    if options.traced:
        with tempfile.TemporaryDirectory() as dist:
            functions, count = traced(["wheels", "pure", "--dist", dist])
        print(f"wheels pure enters {functions} functions in {count} modules")


if __name__ == "__main__":
    main()
