"""Sizes and ages as people write them."""

import os
import re
from collections.abc import Mapping

from torchwheel.errors import UsageError
from torchwheel.shown import quoted

CACHE_SIZE = "TORCHWHEEL_CACHE_SIZE"

_DEFAULT = 2 << 30
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"


def size_cap(environ: Mapping[str, str] = os.environ) -> int:
    """The bytes that the cache may have: TORCHWHEEL_CACHE_SIZE, else 2 GiB."""
    asked = environ.get(CACHE_SIZE)
    return read_size(asked, CACHE_SIZE) if asked else _DEFAULT


def read_size(text: str, where: str) -> int:
    """Bytes from e.g. "2G", "500M", "1.5GiB" or "0"; units are powers of 1024."""
    found = re.fullmatch(rf"{_NUMBER} ?([KMGT]?)(?:I?B)?", text.strip().upper(), re.ASCII)
    if not found:
        raise UsageError(f'{where}={quoted(text)}: a size expected, e.g. "2G" or "500M"')
    return int(float(found[1]) * _BYTES[found[2]])


def read_age(text: str, where: str) -> float:
    """Seconds from e.g. "30d", "12h" or "2w"."""
    found = re.fullmatch(rf"{_NUMBER} ?([mhdw])", text.strip(), re.ASCII)
    if not found:
        raise UsageError(f'{where}={quoted(text)}: an age expected, e.g. "30d", "12h" or "2w"')
    return float(found[1]) * _SECONDS[found[2]]
