"""Reads `matrix.yaml` as a checked Matrix, or reports one line for each mistake."""

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from torchwheel.matrix.document import Document, Fault, kind_of, read_document
from torchwheel.matrix.rules import bundled_exist, findings
from torchwheel.matrix.sections import USUAL_CONTAINERS, Matrix
from torchwheel.text_files import read_text
from torchwheel_runtime.text import KeyPath, nearest, quote, shorten

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


def _fault(document: Document, details: ErrorDetails) -> Fault:
    path: KeyPath = tuple(part for part in details["loc"] if part != "[key]")
    kind, value = details["type"], details["input"]
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
        text = f"{_describe_value(document, path, value)}; expected {expected}"
    elif kind in ("too_short", "string_too_short"):
        text = "is empty; expected at least one entry" if kind == "too_short" else "is empty"
    elif kind == "greater_than":
        text = f"{_describe_value(document, path, value)}; expected more than {context['gt']}"
    else:
        expected = _EXPECTED.get(kind, details["msg"])
        text = f"{_describe_kind(document, path, value)}; expected {expected}"
        if kind == "string_type" and path in document.raw:
            text += f', write "{shorten(document.raw[path])}" in quotes'
    return path, text


def _describe_kind(document: Document, path: KeyPath, value: object) -> str:
    text = "" if isinstance(value, Mapping | tuple) else f"{_value_text(document, path, value)} "
    return f"{text}is {kind_of(value)}"


def _describe_value(document: Document, path: KeyPath, value: object) -> str:
    if isinstance(value, Mapping | tuple):
        return _describe_kind(document, path, value)
    return f"{_value_text(document, path, value)} came"


def _value_text(document: Document, path: KeyPath, value: object) -> str:
    return quote(value) if isinstance(value, str) else shorten(document.raw[path])


def _keys(path: KeyPath) -> list[str]:
    """The keys of the section at `path`."""
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
    """The type inside `Annotated[…]` and `… | None`."""
    if typing.get_origin(kind) is typing.Annotated:
        return _section_or_item(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(k for k in typing.get_args(kind) if k is not type(None))
    return kind


def load(path: Path) -> Matrix:
    """Read and check a matrix.

    Raises:
        UsageError: the file cannot be read.
        MatrixError: one line for each fault: file, line, place, value, what was expected.
    """
    text = read_text(path, "run where the matrix is, or name it with --matrix")
    return parse(text, str(path), path.parent)


def parse(text: str, where: str, root: Path | None = None) -> Matrix:
    """Check a matrix value as text.

    Args:
        text: the YAML.
        where: the file's name in messages.
        root: the folder of the matrix, to check that the folders it names exist; None for no check.
    """
    document = read_document(text, where)
    try:
        matrix = Matrix.model_validate(document.data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # pydantic also calls a list empty whose entries are all wrong.
        relevant = (d for d in errors if not (d["type"] == "too_short" and d["input"]))
        raise document.error(where, (_fault(document, details) for details in relevant)) from None
    if matrix.abis.ordinary and matrix.containers is None:
        matrix = matrix.model_copy(update={"containers": USUAL_CONTAINERS})
    if faults := findings(matrix) + (list(bundled_exist(matrix, root)) if root else []):
        raise document.error(where, faults)
    return matrix
