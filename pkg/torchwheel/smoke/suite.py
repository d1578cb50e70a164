"""The sources of the smoke tests: their digest, and the test functions of each file."""

import ast
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from torchwheel.errors import UsageError
from torchwheel.files import sha256


@dataclasses.dataclass(frozen=True)
class Suite:
    """A folder of smoke tests.

    Attributes:
        digest: hex SHA-256 of all its files.
        functions: by file, the functions that pytest collects there: "test_a", "TestB::test_a".
    """

    digest: str
    functions: Mapping[str, tuple[str, ...]]

    def files(self, chosen: Sequence[str] = ()) -> tuple[str, ...]:
        """Its files with tests; of those `chosen` alone, which may name folders."""
        return tuple(
            name
            for name in self.functions
            if not chosen
            or any(PurePosixPath(name).is_relative_to(PurePosixPath(one)) for one in chosen)
        )


def read_suite(tests: Path) -> Suite:
    """Read a folder of smoke tests; a file that is no Python is a UsageError."""
    functions = {}
    for path in _files(tests):
        if path.suffix == ".py" and (path.stem.startswith("test_") or path.stem.endswith("_test")):
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError) as error:
                raise UsageError(f"{path}: expected Python, found {error}") from error
            functions[path.relative_to(tests).as_posix()] = tuple(_functions(tree.body))
    return Suite(digest_of_tests(tests), {name: of for name, of in functions.items() if of})


def digest_of_tests(tests: Path) -> str:
    """Hex SHA-256 over the names and contents of the files in a folder of smoke tests."""
    digest = hashlib.sha256()
    for path in _files(tests):
        digest.update(f"{path.relative_to(tests).as_posix()}\0{sha256(path)}\n".encode())
    return digest.hexdigest()


def _files(tests: Path) -> Iterator[Path]:
    for path in sorted(tests.rglob("*")):
        parts = path.relative_to(tests).parts
        made = any(part == "__pycache__" or part.startswith(".") for part in parts)
        if path.is_file() and not made:
            yield path


def _functions(body: Sequence[ast.stmt], inside: str = "") -> Iterator[str]:
    """The names of test functions; those that a condition defines are not known."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("test"):
                yield f"{inside}{node.name}"
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _functions(node.body, f"{inside}{node.name}::")
