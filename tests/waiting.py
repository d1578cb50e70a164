"""Waits for what another process does."""

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], what: object = None, seconds: float = 120) -> _T:
    """The first true value of a condition; after `seconds` a failure that says `what`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found
