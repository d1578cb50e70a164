"""`matrix.yaml` to a checked Matrix, or one line for each mistake."""

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from torchwheel.matrix.document import Document, MatrixError, Problem, read_document
from torchwheel.matrix.rules import bundled_exist, findings
from torchwheel.matrix.sections import Matrix
from torchwheel.text import KeyPath, nearest, quote, shorten

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "tuple_type": "a list",
    "mapping_type": "a mapping",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def build_matrix(document: Document) -> Matrix | list[Problem]:
    """The model, or what keeps the data from being one."""
    try:
        return Matrix.model_validate(document.data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # A list whose entries are all wrong is said to be empty as well.
        told = (d for d in found if not (d["type"] == "too_short" and d["input"]))
        return [_problem(document, details) for details in told]


def _problem(document: Document, details: ErrorDetails) -> Problem:
    path: KeyPath = tuple(part for part in details["loc"] if part != "[key]")
    kind, given = details["type"], details["input"]
    context = details.get("ctx", {})
    if kind == "missing":
        text = f'key "{path[-1]}" is missing'
        path = path[:-1]
    elif kind == "extra_forbidden":
        text = f"unknown key {quote(str(path[-1]))}; {nearest(str(path[-1]), _keys(path[:-1]))}"
    elif kind == "value_error":
        text = str(context["error"])
    elif kind == "literal_error":
        expected = context["expected"].replace("'", '"')
        text = f"{_came(document, path, given)}; expected {expected}"
    elif kind in ("too_short", "string_too_short"):
        text = "is empty; expected at least one entry" if kind == "too_short" else "is empty"
    elif kind == "greater_than":
        text = f"{_came(document, path, given)}; expected more than {context['gt']}"
    else:
        expected = _EXPECTED.get(kind, details["msg"])
        text = f"{_kind(document, path, given)}; expected {expected}"
        if kind == "string_type" and path in document.raw:
            text += f', write "{shorten(document.raw[path])}" in quotes'
    return Problem(document.line(path), path, text)


def _kind(document: Document, path: KeyPath, given: object) -> str:
    if isinstance(given, Mapping):
        return "is a mapping"
    if isinstance(given, tuple):
        return "is a list"
    if isinstance(given, str):
        return f"{quote(given)} is text"
    return (
        f"{shorten(document.raw[path])} is {'a boolean' if isinstance(given, bool) else 'a number'}"
    )


def _came(document: Document, path: KeyPath, given: object) -> str:
    if isinstance(given, Mapping | tuple):
        return _kind(document, path, given)
    return f"{quote(given) if isinstance(given, str) else shorten(document.raw[path])} came"


def _keys(path: KeyPath) -> list[str]:
    """Keys that the section at `path` may have."""
    kind: Any = Matrix
    for part in path:
        kind = _section_or_item(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields = {field.alias or name: field for name, field in kind.model_fields.items()}
            kind = fields[str(part)].annotation
        else:
            kind = typing.get_args(kind)[0 if isinstance(part, int) else 1]
    kind = _section_or_item(kind)
    return [field.alias or name for name, field in kind.model_fields.items()]


def _section_or_item(kind: Any) -> Any:  # noqa: ANN401  (any annotation)
    """The type itself, out of `Annotated[…]` and `… | None`."""
    if typing.get_origin(kind) is typing.Annotated:
        return _section_or_item(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(k for k in typing.get_args(kind) if k is not type(None))
    return kind


def load(path: Path) -> Matrix:
    """Read and check a matrix.

    Raises:
        MatrixError: one line for each problem: file, line, place, what came, what was expected.
    """
    where = str(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MatrixError(
            f"{where}: no such file; run where the matrix is, or name it with --matrix"
        ) from None
    except OSError as error:
        raise MatrixError(f"{where}: cannot be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise MatrixError.of(
            where,
            [Problem(line, (), f"not UTF-8: byte 0x{content[error.start]:02x}; save it as UTF-8")],
        ) from None
    return parse(text, where, path.parent)


def parse(text: str, where: str, root: Path | None = None) -> Matrix:
    """Check a matrix given as text.

    Args:
        text: the YAML.
        where: the file's name in messages.
        root: the folder whose parts the matrix names; what is there is left open if none is given.
    """
    document = read_document(text, where)
    matrix = build_matrix(document)
    if isinstance(matrix, Matrix):
        found = findings(matrix) + (list(bundled_exist(matrix, root)) if root else [])
        problems = [Problem(document.line(path), path, what) for path, what in found]
        if not problems:
            return matrix
    else:
        problems = matrix
    raise MatrixError.of(where, problems)
