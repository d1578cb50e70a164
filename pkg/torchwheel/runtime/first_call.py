"""Builds operators at their first call on a GPU.

A kernel in Python is registered in place of the native one. Its first call obtains the operator's
library, removes the Python kernel, loads the library and makes the call again. Without a library,
the dispatcher then finds the composite default of the operator, which is plain PyTorch.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any


class FirstCall:
    """Python kernels for the operators of one family, until the first call."""

    def __init__(
        self, namespace: str, ops: Sequence[str], key: str, obtain: Callable[[], Callable[[], None]]
    ) -> None:
        """Register the Python kernels.

        Args:
            namespace: the operators' namespace.
            ops: their names. The operators are already defined.
            key: the dispatch key of the native kernels.
            obtain: obtains the library, once, while other threads wait. It returns the function
                that loads it, which is called when the Python kernels are removed.
        """
        from torch.library import Library  # noqa: PLC0415 - see prebuilt.load_library

        self._obtain = obtain
        self._lock = threading.RLock()
        self._library: Library | None = Library(namespace, "IMPL")
        for op in ops:
            self._library.impl(op, self._python_kernel(namespace, op), key)

    def settle(self) -> None:
        """Obtain and load the library, if that was not done; other threads wait."""
        with self._lock:
            if self._library is not None:
                load = self._obtain()
                # The dispatcher takes one kernel for each key.
                self._library._destroy()
                self._library = None
                load()

    def _python_kernel(self, namespace: str, op: str) -> Callable[..., Any]:
        def python_kernel(*arguments: object, **keywords: object) -> object:
            self.settle()
            import torch  # noqa: PLC0415

            return getattr(getattr(torch.ops, namespace), op)(*arguments, **keywords)

        return python_kernel
