"""Operators that wait for their first call on a GPU, which is when they are built.

A kernel written in Python stands in for the native one. Called, it has the operator's library
obtained, steps aside for good, has it loaded, and makes the call again. Where none can be had, the
dispatcher finds the operator's composite default, which is plain PyTorch.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any


class FirstCall:
    """Stand-ins for the operators of one family."""

    def __init__(
        self, namespace: str, ops: Sequence[str], key: str, obtain: Callable[[], Callable[[], None]]
    ) -> None:
        """Register the stand-ins.

        Args:
            namespace: of the operators.
            ops: their names; they are defined already.
            key: the dispatch key that the native kernels are for.
            obtain: called once, other threads wait for it; what it returns is called when the
                stand-ins are gone.
        """
        from torch.library import Library  # noqa: PLC0415 - see prebuilt.load_library

        self._obtain = obtain
        self._lock = threading.RLock()
        self._library: Library | None = Library(namespace, "IMPL")
        for op in ops:
            self._library.impl(op, self._stand_in(namespace, op), key)

    def now(self) -> None:
        """Settle it, if that was not done; other threads wait until it is."""
        with self._lock:
            if self._library is not None:
                load = self._obtain()
                # Two kernels for one key are one too many.
                self._library._destroy()
                self._library = None
                load()

    def _stand_in(self, namespace: str, op: str) -> Callable[..., Any]:
        def stand_in(*arguments: object, **keywords: object) -> object:
            self.now()
            import torch  # noqa: PLC0415

            return getattr(getattr(torch.ops, namespace), op)(*arguments, **keywords)

        return stand_in
