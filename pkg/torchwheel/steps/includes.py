"""Which sources include Python.h: their objects are of one Python, all others serve each Python.

Files are read as text, and conditions (#if) count as met. So a source may be taken for one with
Python.h that has none, but not the other way round, unless a macro names the header. That is a
thousand times faster than a preprocessor: torch's 4,500 headers take a second, for all sources.
"""

import re
from collections.abc import Sequence
from pathlib import Path

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_PYTHON = "Python.h"


class IncludeReader:
    """Reads files once, however many sources include them."""

    def __init__(self) -> None:
        self._names: dict[Path, list[tuple[bool, str]]] = {}
        self._found: dict[tuple[Path | None, str, tuple[Path, ...]], Path | None] = {}

    def has_python(self, source: Path, folders: Sequence[Path]) -> bool:
        """Whether `source` includes Python.h, directly or through headers in `folders`."""
        seen, rest = {source}, [source]
        while rest:
            path = rest.pop()
            for quoted, name in self._included(path):
                if name == _PYTHON:
                    return True
                header = self._find(path.parent if quoted else None, name, tuple(folders))
                if header and header not in seen:
                    seen.add(header)
                    rest.append(header)
        return False

    def _included(self, path: Path) -> list[tuple[bool, str]]:
        if path not in self._names:
            text = path.read_bytes()
            self._names[path] = [
                (quote == b'"', name.decode(errors="replace"))
                for quote, name in _INCLUDE.findall(text)
            ]
        return self._names[path]

    def _find(self, beside: Path | None, name: str, folders: tuple[Path, ...]) -> Path | None:
        key = (beside, name, folders)
        if key not in self._found:
            places = ([beside] if beside else []) + list(folders)
            paths = (folder / name for folder in places)
            self._found[key] = next((path for path in paths if path.is_file()), None)
        return self._found[key]
