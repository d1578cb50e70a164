"""Unpacks zstd frames, in which clang and nvcc pack GPU code."""

import importlib
from types import ModuleType

from torchwheel.inspect.archive import WheelError


def unpack(packed: bytes, size: int) -> bytes:
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
    raise WheelError("is packed with zstd: install backports.zstd, or use Python 3.14, to read it")
