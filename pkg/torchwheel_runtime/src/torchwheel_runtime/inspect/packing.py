"""Unpacks GPU code: zlib, zstd and LZ4, never more than is asked for."""

import importlib
import zlib
from types import ModuleType

from torchwheel_runtime.inspect.window import WheelError


class NoZstdError(WheelError):
    """This Python has no zstd."""


def unpack_zlib(packed: bytes, size: int) -> bytes:
    """The first `size` bytes of a stream; a ValueError if it is malformed."""
    try:
        return zlib.decompressobj().decompress(packed, size)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked: {error}") from error


def unpack_zstd(packed: bytes, size: int) -> bytes:
    """The first `size` bytes of a frame; a ValueError if it is malformed."""
    decompressor = _zstd().ZstdDecompressor()
    try:
        return bytes(decompressor.decompress(packed, size))
    # The type of its error is in a module that may be absent.
    except Exception as error:
        raise ValueError(f"cannot be unpacked: {error}") from error


def _zstd() -> ModuleType:
    """The zstd module of Python 3.14, or its backport, which has the same names."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise NoZstdError("is packed with zstd: install backports.zstd, or use Python 3.14, to read it")


_LITERALS, _MATCH = 4, 15
_LONG = 15
_MORE = 255
_LEAST_MATCH = 4


def unpack_lz4(packed: bytes, size: int, most: int) -> bytes:
    """The first `size` bytes of a block, which has `most` at most; a ValueError if it is malformed.

    nvcc before CUDA 13 packs GPU code so; 8 MB of it take 0.8 s.

    A block is a row of pieces: a byte with two lengths of 4 bits, literal bytes, and the distance
    to earlier bytes that follow again. A length of 15 goes on in the next bytes. The last piece
    has literals alone.
    """
    out = bytearray()
    at = 0
    try:
        while len(out) < size:
            token = packed[at]
            at += 1
            if count := token >> _LITERALS:
                if count == _LONG:
                    count, at = _longer(packed, at, count)
                out += packed[at : at + count]
                at += count
            if at >= len(packed) or len(out) >= size:
                break
            distance = packed[at] | packed[at + 1] << 8
            at += 2
            count = token & _MATCH
            if count == _LONG:
                count, at = _longer(packed, at, count)
            count += _LEAST_MATCH
            start = len(out) - distance
            if start < 0 or not distance or len(out) + count > most:
                raise ValueError("malformed LZ4 data")
            if distance >= count:
                out += out[start : start + count]
            else:
                # It repeats what it writes.
                out += (out[start:] * (count // distance + 1))[:count]
    except IndexError as error:
        raise ValueError("LZ4 data that are cut short") from error
    return bytes(out[:size])


def _longer(packed: bytes, at: int, count: int) -> tuple[int, int]:
    """A length that goes on: each byte is added, and the first below 255 ends it."""
    while True:
        byte = packed[at]
        at += 1
        count += byte
        if byte != _MORE:
            return count, at
