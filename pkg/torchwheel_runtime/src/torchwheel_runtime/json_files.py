"""Reads JSON that torchwheel wrote: a value of the type that is asked for, or one line.

Such a file may be torn, edited or planted, so nothing in it is believed: not its size, its depth,
its keys or the types of its fields. A dataclass says what is expected. Standard library only, as
the import of an extension reads its claims with this.
"""

import collections
import dataclasses
import functools
import json
import math
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, cast

from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.ownership import NotRegularError, open_regular
from torchwheel_runtime.text import KeyPath, dotted_path, escape, quote

T = TypeVar("T")

MAX_BYTES = 8 << 20
_MAX_DEPTH = 32
_MAX_DIGITS = 18
_MAX_SHARED = 1000
_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_FILE_NAME = "the name of a file"

FileName = Annotated[str, _FILE_NAME]
"""The name of a file without a folder, so that nothing outside a folder is reached by it."""

TextReaders = Mapping[object, Callable[[str], object]]
"""Types that are written as text, each with the function that reads it; it may raise ValueError."""


def read_json(
    path: Path,
    kind: type[T],
    *,
    do: str = "",
    schema: int | None = None,
    others: bool = False,
    complete: bool = False,
    readers: TextReaders | None = None,
    shared: frozenset[type] = frozenset(),
) -> T:
    """Read a file; see `parse_json`.

    Raises:
        OSError: it cannot be read.
        MalformedError: it is no regular file, or not as expected.
    """
    content = read_bounded(path, do)
    return parse_json(
        content,
        kind,
        str(path),
        do=do,
        schema=schema,
        others=others,
        complete=complete,
        readers=readers,
        shared=shared,
    )


def read_bounded(path: Path, do: str = "") -> bytes:
    """The content of a regular file, up to one byte more than `parse_json` takes.

    Raises:
        OSError: it cannot be read.
        MalformedError: it is no regular file.
    """
    try:
        handle = open_regular(path)
    except NotRegularError:
        wrong = "expected a file, found a folder or a device"
        raise MalformedError(escape(str(path)), wrong, do) from None
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_BYTES + 1)


def parse_json(
    content: str | bytes,
    kind: type[T],
    where: str,
    *,
    do: str = "",
    schema: int | None = None,
    others: bool = False,
    complete: bool = False,
    readers: TextReaders | None = None,
    shared: frozenset[type] = frozenset(),
) -> T:
    """Read JSON as a value of type `kind`.

    Args:
        content: the file's text or bytes.
        kind: a dataclass, or built-in types such as dict[str, int]; object for any JSON. A
            dataclass is an object whose keys are its fields; one with a default may be missing.
        where: the file's name in messages.
        do: what the user can do about a malformed file.
        schema: the number that the key "schema" must have; None for a file without this key.
        others: whether objects may have keys that are no fields, as in files of other programs.
        complete: whether a field with a default must be there too.
        readers: types of fields that are written as text, beside Path.
        shared: frozen dataclasses of which many values are equal, as in all files that are read.
            They are converted once.

    Raises:
        MalformedError: one line: place, what was expected, what was found, what to do.
    """
    try:
        value = _decode(content)
        if schema is not None:
            value = _without_schema(value, schema)
        return cast("T", _Reader(others, complete, readers or {}, shared).read(kind, value))
    except _Unexpected as error:
        raise MalformedError(escape(where), str(error), do) from None
    except RecursionError:
        found = f"expected at most {_MAX_DEPTH} levels, found more"
        raise MalformedError(escape(where), found, do) from None


def last_line(output: str) -> str:
    """The line of a program's output that has its answer: the last; empty if there is none."""
    return output.rstrip().rpartition("\n")[2]


class _Unexpected(Exception):  # noqa: N818 - it never leaves this module
    """What is wrong, after its place in the file."""

    def __init__(self, path: KeyPath, text: str) -> None:
        super().__init__()
        self.path = path
        self.text = text

    def __str__(self) -> str:
        return f"{dotted_path(self.path)}: {self.text}" if self.path else self.text

    def below(self, key: str | int) -> "_Unexpected":
        """The same fault, in the value of a key."""
        return _Unexpected((key, *self.path), self.text)


def _unexpected(expected: str, found: str) -> _Unexpected:
    return _Unexpected((), f"expected {expected}, found {found}")


def _decode(content: str | bytes) -> object:
    if len(content) > MAX_BYTES:
        raise _unexpected(f"at most {MAX_BYTES >> 20} MiB", "more")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        return _DECODER.decode(text)
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise _unexpected("UTF-8", found) from None
    except json.JSONDecodeError as error:
        found = f"at line {error.lineno}, column {error.colno}: {error.msg}"
        raise _unexpected("JSON", found) from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen = collections.Counter(key for key, _ in pairs)
        twice = next(key for key, count in seen.items() if count > 1)
        raise _unexpected("each key once", f"{quote(twice)} twice")
    return value


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _unexpected(f"at most {_MAX_DIGITS} digits", f"{len(text)}")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _no_number(text)
    return value


def _no_number(text: str) -> NoReturn:
    raise _unexpected("a number", quote(text))


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_whole_number,
    parse_float=_number,
    parse_constant=_no_number,
)


def _without_schema(value: object, schema: int) -> object:
    if not isinstance(value, dict):
        raise _unexpected("an object", _describe(value))
    found = value.get("schema")
    if type(found) is not int or found != schema:
        raise _unexpected(f"schema {schema}", _describe(found) if "schema" in value else "none")
    return {key: part for key, part in value.items() if key != "schema"}


def _describe(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)


@functools.cache
def _fields(kind: Any) -> Mapping[str, tuple[object, bool]]:  # noqa: ANN401 - any dataclass
    """The fields of a dataclass: the type of each, and whether it may be missing."""
    hints = typing.get_type_hints(kind, include_extras=True)
    absent = dataclasses.MISSING
    return {
        field.name: (
            hints[field.name],
            field.default is not absent or field.default_factory is not absent,
        )
        for field in dataclasses.fields(kind)
    }


class _Reader:
    """Reads decoded JSON as a type, or raises what was not expected."""

    # No dataclass: to make one takes an import of an extension half a millisecond.
    def __init__(
        self, others: bool, complete: bool, readers: TextReaders, shared: frozenset[type]
    ) -> None:
        self.others = others
        self.complete = complete
        self.readers = {Path: _path, **readers}
        self.shared = shared

    def read(self, kind: Any, value: object) -> object:  # noqa: ANN401, PLR0911 - any type
        """The value as one of type `kind`."""
        if kind in _KINDS:
            return _text(value) if kind is str else _plain(value, kind)
        if kind in self.readers:
            return _read_text(self.readers[kind], value)
        if kind is object or kind is Any:
            return _any(value)
        origin, inner = _parts_of(kind)
        if origin is _RECORD:
            return self._shared(kind, value) if kind in self.shared else self._record(kind, value)
        if origin in (typing.Union, types.UnionType):
            return None if value is None else self.read(inner[0], value)
        if origin is Literal:
            return _one_of(inner, value)
        if origin is Annotated:
            return _file_name(value)
        if origin in _MAPPINGS:
            if not isinstance(value, dict):
                raise _unexpected("an object", _describe(value))
            return {_text(key): self._part(inner[1], part, key) for key, part in value.items()}
        if origin not in (list, tuple):  # a type that JSON has not: its field must be null
            raise _unexpected("null", _describe(value))
        return self._sequence(origin, inner, value)

    def _part(self, kind: object, value: object, key: str | int) -> object:
        try:
            return self.read(kind, value)
        except _Unexpected as error:
            raise error.below(key) from None

    def _sequence(self, kind: Any, of: tuple[Any, ...], value: object) -> object:  # noqa: ANN401
        if not isinstance(value, list):
            raise _unexpected("a list", _describe(value))
        if kind is list or of[-1] is Ellipsis:
            return kind(self._part(of[0], part, at) for at, part in enumerate(value))
        if len(value) != len(of):
            raise _unexpected(f"a list of {len(of)}", f"{len(value)}")
        return tuple(self._part(one, value[at], at) for at, one in enumerate(of))

    def _record(self, kind: Any, value: object) -> object:  # noqa: ANN401 - any dataclass
        if not isinstance(value, dict):
            raise _unexpected("an object", _describe(value))
        fields = _fields(kind)
        if not self.others and not fields.keys() >= value.keys():
            name = next(name for name in value if name not in fields)
            raise _unexpected(f"no key {quote(name)}", "one")
        values = {}
        for name, (of, optional) in fields.items():
            try:
                if name in value:
                    values[name] = self.read(of, value[name])
            except _Unexpected as error:
                raise error.below(name) from None
            if name not in values and (self.complete or not optional):
                raise _unexpected(f"key {quote(name)}", "none")
        return kind(**values)

    def _shared(self, kind: type, value: object) -> object:
        """One object for equal JSON, in whatever file."""
        text = repr(value)  # it tells 1 from 1.0 and from true
        key = (kind, self.others, self.complete, text)
        if key not in _SHARED:
            if len(_SHARED) == _MAX_SHARED:
                _SHARED.clear()
            _SHARED[key] = self._record(kind, value)
        return _SHARED[key]


_SHARED: dict[tuple[object, ...], object] = {}
_MAPPINGS = (dict, Mapping)
_RECORD = object()


@functools.cache
def _parts_of(kind: object) -> tuple[object, tuple[Any, ...]]:
    """E.g. list and (str,) of list[str], Union and (str,) of str | None; _RECORD of a dataclass."""
    origin = _RECORD if dataclasses.is_dataclass(kind) else typing.get_origin(kind)
    return origin, tuple(of for of in typing.get_args(kind) if of is not types.NoneType)


def _read_text(read: Callable[[str], object], value: object) -> object:
    if not isinstance(value, str):
        raise _unexpected("text", _describe(value))
    try:
        return read(value)
    except ValueError as error:
        raise _Unexpected((), str(error)) from None


def _one_of(known: tuple[str, ...], value: object) -> object:
    if not isinstance(value, str) or value not in known:
        raise _unexpected(" or ".join(map(quote, known)), _describe(value))
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise _unexpected(_KINDS[str], _describe(value))
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _unexpected("text", f"half a character in {quote(value)}") from None
    return value


def _plain(value: object, kind: type) -> object:
    """A number, or true or false."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise _unexpected(_KINDS[kind], _describe(value))
    return value


def _any(value: object, path: KeyPath = ()) -> object:
    """Any JSON that is not nested too deep."""
    if len(path) > _MAX_DEPTH:
        raise _Unexpected(path[:1], f"expected at most {_MAX_DEPTH} levels, found more")
    try:
        if isinstance(value, dict):
            return {_text(key): _any(part, (*path, key)) for key, part in value.items()}
        if isinstance(value, list):
            return [_any(part, (*path, at)) for at, part in enumerate(value)]
        return _text(value) if isinstance(value, str) else value
    except _Unexpected as error:
        raise (error if error.path else _Unexpected(path, error.text)) from None


def _path(text: str) -> Path:
    """A path; bytes that are not UTF-8 are half characters in its text."""
    try:
        if "\0" not in text and os.fsencode(text):
            return Path(text)
    except UnicodeEncodeError:
        pass
    raise ValueError(f"expected a path, found {quote(text)}")


def _file_name(value: object) -> object:
    name = _text(value)
    if name in {"", ".", ".."} or "/" in name or not name.isprintable():
        raise _unexpected(_FILE_NAME, quote(name))
    return name
