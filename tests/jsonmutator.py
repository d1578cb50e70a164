"""Makes malformed JSON out of good JSON: wrong types, odd numbers and texts, torn files."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

DEEP = 100_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 5, 1.5, 2**63, -(10**30)),
    *("", ".", "..", "../..", "/etc/passwd", "a/b", "\0", "\ud800", "\n", "x" * 5000, "\u202e"),
    *([], {}, [[]], [None], [5], ["\ud800"], {"": 5}, {"file": 5}, {"file": ".."}, [{}]),
)
WORDS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "-", '"', "}", "]", '"\\ud800"'),
    *("[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP),
)
BYTES = (b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b" ")


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all parts of a value."""
    yield path
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from places(part, (*path, key))


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """A copy of a value with another part at `path`."""
    if not path:
        return new
    value = copy.deepcopy(value)
    part = value
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = new
    return value


def without(value: Any, path: tuple[str | int, ...]) -> Any:
    """A copy of a value that lacks the part at `path`."""
    value = copy.deepcopy(value)
    part = value
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return value


def mutated(text: str, rng: random.Random) -> bytes:
    """One malformed copy of a JSON file; it may be a good one by chance."""
    value = json.loads(text)
    path = rng.choice(list(places(value)))
    way = rng.randrange(8)
    if way < 3:
        return json.dumps(replaced(value, path, rng.choice(VALUES))).encode()
    if way == 3:
        marked = json.dumps(replaced(value, path, "@HERE@"))
        return marked.replace('"@HERE@"', rng.choice(WORDS)).encode()
    if way == 4 and path:
        return json.dumps(without(value, path)).encode()
    if way == 5 and path and isinstance(path[-1], str):
        twice = json.dumps(replaced(value, path, "@HERE@"))
        key = json.dumps(path[-1])
        return twice.replace('"@HERE@"', f"{key}: 5, {key}: [5]", 1).encode()
    data = text.encode()
    at = rng.randrange(len(data) + 1)
    if way == 6:
        return data[:at]
    return data[:at] + rng.choice(BYTES) + data[at + rng.randrange(3) :]
