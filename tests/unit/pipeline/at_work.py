"""Counts how many threads are in a block at once."""

import threading
import time


class AtWork:
    """`with at_work: …` takes a moment; `most` is how many were in it at once."""

    def __init__(self) -> None:
        self.most, self._now, self._lock = 0, 0, threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        time.sleep(0.02)
        with self._lock:
            self._now -= 1
