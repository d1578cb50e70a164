"""Reads YAML text as plain data with the line of each part; YAML cannot make other objects."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import yaml

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import KeyPath, dotted_path, quote
from torchwheel_runtime.validate.findings import Finding

Fault = tuple[KeyPath, str]
"""A place of the document, and what is wrong there."""


class MatrixError(UsageError):
    """The matrix is wrong: one line for each finding, in the order of the file."""

    @classmethod
    def of(cls, where: str, faults: Iterable[tuple[int, Fault]]) -> "MatrixError":
        """Lines such as `matrix.yaml:14: toolkits.cu130.archs[2]: "9.x" is not an arch; …`.

        Each fault has the number of its line.
        """
        return cls(
            *(
                f"{where}:{line}: {Finding('matrix', text, where=dotted_path(path))}"
                for line, (path, text) in sorted(faults, key=lambda one: one[0])
            )
        )


_DEEPEST = 16
# Half characters, which no encoding has, and control characters: an escape can write them.
_ODD = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")


@dataclasses.dataclass(frozen=True)
class Document:
    """The data of a file, and the line of each part."""

    data: Any
    lines: dict[KeyPath, int]
    raw: dict[KeyPath, str]
    """Scalars as the file has them, e.g. "2.10" for a number."""

    def line(self, path: KeyPath) -> int:
        """The line of a part, or of the nearest part around it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def error(self, where: str, faults: Iterable[Fault]) -> MatrixError:
        """The error that has a line for each fault; `where` is the file's name."""
        return MatrixError.of(where, ((self.line(fault[0]), fault) for fault in faults))


def read_document(text: str, where: str) -> Document:
    """Read YAML; MatrixError has one line for each finding."""
    try:
        root = _PlainLoader(text, where).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        what = " ".join((error.problem or str(error)).split())
        raise MatrixError.of(where, [(line, ((), f"not valid YAML: {what}"))]) from None
    except (ValueError, OverflowError):
        # The scanner raises these for an escape such as "\UFFFFFFFF", which is no character.
        raise MatrixError.of(where, [(1, ((), "not valid YAML: a bad escape"))]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise MatrixError.of(where, [(line, ((), what))]) from None
    if root is None or _kind(root) == "empty":
        what = 'the file is empty; expected "schema: 1" and the rest'
        raise MatrixError.of(where, [(1, ((), what))])
    reader = _YamlReader()
    data = reader.value(root, ())
    if reader.faults:
        raise MatrixError.of(where, reader.faults)
    return Document(data, reader.lines, reader.raw)


class _PlainLoader(yaml.SafeLoader):
    """Refuses what a matrix does not need: anchors, tags, and parts that are nested deep."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self._where = where
        self._depth = 0

    def get_event(self) -> yaml.Event:
        """The next part of the file, before anything is made of it."""
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call]
        odd = None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            odd = "anchors and aliases are not supported; write the value out"
        elif getattr(event, "tag", None):
            odd = "YAML tags are not supported; remove the tag"
        elif isinstance(event, yaml.CollectionStartEvent):
            self._depth += 1
            if self._depth > _DEEPEST:
                odd = f"nested more than {_DEEPEST} deep"
        elif isinstance(event, yaml.CollectionEndEvent):
            self._depth -= 1
        if odd:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise MatrixError.of(self._where, [(line, ((), odd))])
        return event


class _YamlReader:
    """Converts the nodes to plain data, and notes lines and faults."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.raw: dict[KeyPath, str] = {}
        self.faults: list[tuple[int, Fault]] = []

    def value(self, node: yaml.Node, path: KeyPath) -> object:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.value(item, (*path, i)) for i, item in enumerate(node.value))
        self.raw[path] = node.value
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node, path, line)
            if key is None:
                continue
            key_path = (*path, key)
            if key in data:
                first = self.lines[key_path]
                self._find(line, key_path, f"duplicate key; the first is on line {first}")
                continue
            self.lines[key_path] = line
            data[key] = self.value(value_node, key_path)
        return data

    def _key(self, node: yaml.Node, path: KeyPath, line: int) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._find(line, path, "a key must be text")
            return None
        kind = _kind(node)
        if kind != "text":
            self._find(
                line, path, f"key {quote(node.value)} is {kind}; expected text, put it in quotes"
            )
            return None
        return str(node.value) if self._is_plain(node, path, line) else None

    def _scalar(self, node: yaml.Node, path: KeyPath) -> object:
        kind = _kind(node)
        self._is_plain(node, path, self.lines[path])
        if kind == "empty":
            self._find(self.lines[path], path, "has no value; write one or remove the key")
        if kind == "a boolean":
            return str(node.value).lower() in ("yes", "true", "on")
        if kind == "a number":
            integer = re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,17})", node.value)
            # No key of a matrix takes a fraction: the type check refuses any float later.
            return int(node.value) if integer else 0.5
        return node.value

    def _is_plain(self, node: yaml.Node, path: KeyPath, line: int) -> bool:
        odd = _ODD.search(node.value)
        if odd:
            self._find(
                line, path, f"{quote(node.value)} has the character U+{ord(odd[0]):04X}; remove it"
            )
        return not odd

    def _find(self, line: int, path: KeyPath, text: str) -> None:
        self.faults.append((line, (path, text)))


def _kind(node: yaml.Node) -> str:
    name = str(node.tag).rsplit(":", 1)[-1]
    return {"null": "empty", "bool": "a boolean", "int": "a number", "float": "a number"}.get(
        name, "text"
    )


def kind_of(value: object) -> str:
    """What a part of a document is, for messages."""
    kinds: dict[type, str] = {dict: "a mapping", tuple: "a list", str: "text", bool: "a boolean"}
    kinds[type(None)] = "none"
    return kinds.get(type(value), "a number")
