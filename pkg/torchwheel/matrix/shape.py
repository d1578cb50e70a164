"""Plain data to the model, and pydantic's findings in words a user understands."""

import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from torchwheel.matrix.document import Document
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.problem import Problem
from torchwheel.shown import Path, cut, nearest, quoted

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


def shaped(document: Document) -> Matrix | list[Problem]:
    """The model, or what keeps the data from being one."""
    try:
        return Matrix.model_validate(document.data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # A list whose entries are all wrong is said to be empty as well.
        told = (d for d in found if not (d["type"] == "too_short" and d["input"]))
        return [_problem(document, details) for details in told]


def _problem(document: Document, details: ErrorDetails) -> Problem:
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    kind, given = details["type"], details["input"]
    context = details.get("ctx", {})
    if kind == "missing":
        text = f'key "{path[-1]}" is missing'
        path = path[:-1]
    elif kind == "extra_forbidden":
        text = f"unknown key {quoted(str(path[-1]))}; {nearest(str(path[-1]), _keys(path[:-1]))}"
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
            text += f', write "{cut(document.raw[path])}" in quotes'
    return Problem(document.line(path), path, text)


def _kind(document: Document, path: Path, given: object) -> str:
    if isinstance(given, Mapping):
        return "is a mapping"
    if isinstance(given, tuple):
        return "is a list"
    if isinstance(given, str):
        return f"{quoted(given)} is text"
    return f"{cut(document.raw[path])} is {'a boolean' if isinstance(given, bool) else 'a number'}"


def _came(document: Document, path: Path, given: object) -> str:
    if isinstance(given, Mapping | tuple):
        return _kind(document, path, given)
    return f"{quoted(given) if isinstance(given, str) else cut(document.raw[path])} came"


def _keys(path: Path) -> list[str]:
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
