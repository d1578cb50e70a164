"""Changes an input at random, by what its format is made of; the same for the same generator."""

import copy
import gzip
import io
import json
import random
import tarfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""Returns a changed input, of a generator, the input and all inputs of the target."""

SIGNS = [
    *("\0", "\n", "\r", "\r\n", "\x1b[2J", "\x7f", "\x85", "\u202e", "\u2028", "\ufeff", "\udc80"),
    *("\U0001f600", "e\u0301", "%(x)s", "%s", "{0}", "$HOME", "`id`", *";,\"'\\#"),
]
PATHS = [
    *("..", ".", "/", "/etc/passwd", "../../escape", "a/../../b", "C:\\x", "~/x", "/dev/zero", "")
]
NUMBERS = [
    *(0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 4096, 65535, 65536, 1 << 24, 1 << 31),
    *(0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
]
WORDS = [*PATHS, "-1", "0", "1e999", "NaN", "9" * 30, "null", "true", "x" * 300, "2.11", "sm_90"]


def mutate_bytes(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Flip, overwrite, remove, repeat and insert bytes; change numbers; join two inputs."""
    changed = bytearray(data)
    for _ in range(some(rng)):
        _change_bytes(rng, changed, inputs)
    return bytes(changed)


def some(rng: random.Random) -> int:
    """Mostly one change, sometimes many."""
    return rng.choice((1, 1, 1, 2, 2, 3, 5, 12))


def _change_bytes(rng: random.Random, data: bytearray, inputs: Sequence[bytes]) -> None:
    size = len(data)
    at = rng.randrange(size + 1)
    length = min(rng.choice((1, 2, 4, 8, 16, 64, 512)), size - at)
    kind = rng.randrange(8)
    if kind <= 2 and size >= 8:
        _change_number(rng, data)
    elif kind == 3 and at < size:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 4:
        del data[at : at + length]
    elif kind == 5:
        data[at:at] = data[at : at + length] * rng.choice((1, 2, 8))
    elif kind == 6:
        other = rng.choice(inputs)
        start = rng.randrange(len(other) + 1)
        data[at : at + length] = other[start : start + rng.choice((4, 16, 64, 1024))]
    elif at < size:
        data[at] = rng.randrange(256)
    if rng.randrange(40) == 0:
        del data[at:]


def _change_number(rng: random.Random, data: bytearray) -> None:
    """Overwrite an aligned number of 2, 4 or 8 bytes."""
    width = rng.choice((2, 4, 4, 8, 8))
    at = rng.randrange(0, len(data) - width + 1, rng.choice((1, 2, width)))
    old = int.from_bytes(data[at : at + width], "little")
    choices = (rng.choice(NUMBERS), old + rng.choice((-8, -1, 1, 8, 64)), len(data), old << 8, -old)
    value = rng.choice(choices) & ((1 << 8 * width) - 1)
    data[at : at + width] = value.to_bytes(width, "little")


def mutate_numbers(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Overwrite numbers, as of headers and tables; at times any bytes."""
    changed = bytearray(data)
    for _ in range(some(rng)):
        if len(changed) >= 8 and rng.randrange(4):
            _change_number(rng, changed)
        else:
            _change_bytes(rng, changed, inputs)
    return bytes(changed)


def mutate_text(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Change lines and words of a text; at times bytes."""
    if rng.randrange(12) == 0:
        return mutate_bytes(rng, data, inputs)
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(some(rng)):
        text = _change_text(rng, text, inputs)
    return text.encode("utf-8", "surrogatepass" if rng.randrange(2) else "replace")


def _change_text(rng: random.Random, text: str, inputs: Sequence[bytes]) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(9)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 200))
    elif kind == 2:
        lines[at], lines[0] = lines[0], lines[at]
    elif kind == 3:
        other = rng.choice(inputs).decode("utf-8", "replace").split("\n")
        lines[at] = rng.choice(other)
    else:
        place = rng.randrange(len(text) + 1)
        cut = rng.choice((0, 0, 1, 2, 6, 20))
        put = rng.choice((rng.choice(SIGNS), rng.choice(WORDS), rng.choice("[]{}()<>:-|&*!@ \t=.")))
        put *= rng.choice((1, 1, 1, 1, 3, 300))
        return text[:place] + put + text[place + cut :]
    return "\n".join(lines)


def mutate_json(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Change values, keys and types of a JSON text; at times its characters."""
    if rng.randrange(6) == 0:
        return mutate_text(rng, data, inputs)
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_text(rng, data, inputs)
    for _ in range(some(rng)):
        tree = _change_tree(rng, tree)
    text = json.dumps(tree, indent=rng.choice((None, 1)), ensure_ascii=rng.randrange(2) == 0)
    if rng.randrange(30) == 0:
        deep = rng.choice((20, 500, 100_000))
        text = text.replace(rng.choice(_SCALARS), rng.choice(("[" * deep, '{"a":' * deep)), 1)
    if rng.randrange(40) == 0:
        text = text.replace(":", rng.choice((f": {'9' * 5000} ,", ": NaN, ", ": Infinity,")), 1)
    return text.encode("utf-8", "surrogatepass")


_SCALARS = ("null", "true", "1", '"')


def _odd_value(rng: random.Random) -> Any:
    return rng.choice(
        (
            *(None, True, False, 0, -1, 1.5, 1 << 70, 1e308, "", [], {}, [[]], {"a": []}),
            *(rng.choice(SIGNS), rng.choice(PATHS), rng.choice(WORDS), "\ud800", "x" * 5000),
            *([rng.choice(WORDS)] * 3, {rng.choice(WORDS): rng.choice(WORDS)}),
        )
    )


def _change_tree(rng: random.Random, tree: Any) -> Any:
    """Change one place of the tree."""
    if not isinstance(tree, dict | list) or not tree or rng.randrange(8) == 0:
        if isinstance(tree, str) and rng.randrange(2):
            place = rng.randrange(len(tree) + 1)
            return tree[:place] + rng.choice(SIGNS + PATHS) + tree[place:]
        return _odd_value(rng)
    if isinstance(tree, dict):
        key = rng.choice(list(tree))
        kind = rng.randrange(8)
        if kind == 0:
            del tree[key]
        elif kind == 1:
            tree[rng.choice((*WORDS, *SIGNS))] = tree[key]
        else:
            tree[key] = _change_tree(rng, tree[key])
        return tree
    at = rng.randrange(len(tree))
    kind = rng.randrange(8)
    if kind == 0:
        del tree[at]
    elif kind == 1:
        tree += [tree[at]] * rng.choice((1, 3))
    else:
        tree[at] = _change_tree(rng, tree[at])
    return tree


def mutate_tar(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Change members of a tar archive, then pack it again; at times change its bytes."""
    if rng.randrange(8) == 0:
        return mutate_bytes(rng, data, inputs)
    try:
        members = _tar_members(data)
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        members = []
    if not members:
        return mutate_bytes(rng, data, inputs)
    for _ in range(some(rng)):
        at = rng.randrange(len(members))
        info, content = members[at]
        info = copy.copy(info)
        kind = rng.randrange(7)
        if kind == 0:
            info.type = rng.choice(
                (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", b"x", b"L")
            )
        elif kind == 1:
            info.linkname = rng.choice((*PATHS, *(other.name for other, _ in members)))
            info.type = rng.choice((b"1", b"2"))
        elif kind == 2:
            name = mutate_text(rng, info.name.encode(), [b"demo-1.0/setup.py"])
            info.name = name.decode("utf-8", "replace")[:90]
        elif kind == 3:
            info.size = rng.choice((0, 1, 511, 512, 1 << 20, 1 << 33, len(content)))
        elif kind == 4:
            info.mode = rng.choice((0o4755, 0, 0o777, 0o644))
        elif kind == 5:
            content = rng.randbytes(rng.choice((0, 1, 600, 5000)))
            info.size = len(content)
        else:
            members.insert(rng.randrange(len(members) + 1), (info, content))
            continue
        members[at] = info, content
    return _tar_bytes(rng, members)


def _tar_members(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [
            (info, archive.extractfile(info).read() if info.isreg() else b"")  # type: ignore[union-attr]
            for info in archive
        ]


def _tar_bytes(rng: random.Random, members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    plain = b""
    for info, content in members:
        try:
            plain += info.tobuf(rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)))
        except ValueError:
            continue
        plain += content + bytes(-len(content) % 512)
    plain += bytes(1024)
    return gzip.compress(plain, 1, mtime=0) if rng.randrange(2) else plain
