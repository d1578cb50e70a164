"""Reads the files that a wheel and an installed package both have: RECORD, and WHEEL's tags."""

import csv
import dataclasses
import io
import math
import re
from collections.abc import Iterator, Sequence

from packaging.tags import Tag, parse_tag

from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.text import shorten

ELF_MAGIC = b"\x7fELF"
_SIZE_DIGITS = 18
_TAG = re.compile(r"[\w.]+-[\w.]+-[\w.]+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class RecordEntry:
    """A line of RECORD; the hash is `sha256=…` in URL-safe base64 without padding."""

    digest: str
    size: int | None


def parse_record(text: str) -> dict[str, RecordEntry]:
    """Read RECORD's text; a malformed line is a WheelError that names it."""
    entries: dict[str, RecordEntry] = {}
    for number, row in enumerate(_record_rows(text), 1):
        if number > budgets.RECORD_ROWS:
            raise WheelError(f"RECORD has more than {budgets.RECORD_ROWS} lines")
        if not row:
            continue
        if len(row) != 3:
            raise WheelError(f"RECORD line {number}: 3 fields expected, got {len(row)}")
        name, digest, size = row
        if name in entries:
            raise WheelError(f"RECORD line {number}: {name!r} is listed twice")
        if size and not (size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS):
            raise WheelError(f"RECORD line {number}: {shorten(size)!r} is not a size")
        entries[name] = RecordEntry(digest, int(size) if size else None)
    return entries


def _record_rows(text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), strict=True)
    except csv.Error as error:
        raise WheelError(f"RECORD is not CSV: {error}") from error


def read_tags(values: Sequence[str]) -> frozenset[Tag]:
    """The tags of WHEEL's lines, each multiplied out; a WheelError if they are none or too many."""
    lines = [str(value).strip() for value in values]
    require_few_tags(lines)
    tags: set[Tag] = set()
    for text in lines:
        try:
            if not _TAG.fullmatch(text):
                raise ValueError("other characters")
            tags |= parse_tag(text)
        except ValueError as error:
            raise WheelError(f"WHEEL: {shorten(text)!r} is not a tag") from error
    return frozenset(tags)


def require_few_tags(texts: Sequence[str]) -> None:
    """Raise a WheelError unless the tags are few when each is multiplied out."""
    count = sum(math.prod(part.count(".") + 1 for part in text.split("-")) for text in texts)
    if count > budgets.TAGS:
        raise WheelError(f"names {count} tags; at most {budgets.TAGS} expected")
