"""Builds operators at their first call on a GPU.

A kernel in Python is registered in place of the native one. Its first call obtains the operator's
library, removes the Python kernel, loads the library and makes the call again. Without a library,
the dispatcher then finds the composite default of the operator, which is plain PyTorch.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
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


class Router:
    """Runs the operators in plain PyTorch on GPUs without kernels, beside GPUs that have some.

    It stands at the BackendSelect key, which every call passes above the backend's key and below
    autograd. It is registered only where a visible GPU has no kernels.
    """

    def __init__(
        self,
        namespace: str,
        ops: Sequence[str],
        unserved: Mapping[int, str],
        report: Callable[[str], None],
    ) -> None:
        """Register the operators' kernels for that key.

        Args:
            namespace: the operators' namespace.
            ops: their qualified names, e.g. "fusedops::bias_gelu".
            unserved: the index of each GPU without kernels, and why it has none.
            report: is called with that reason at each call on such a GPU; it may raise.
        """
        import torch  # noqa: PLC0415 - see prebuilt.load_library
        from torch.library import Library  # noqa: PLC0415

        self._unserved = unserved
        self._report = report
        self._plain = torch._C.DispatchKey.CompositeExplicitAutograd
        self._below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self._library = Library(namespace, "IMPL")
        for op in ops:
            name = op.partition("::")[2]
            overload = getattr(getattr(torch.ops, namespace), name).default
            self._library.impl(name, self._kernel(overload), "BackendSelect", with_keyset=True)

    def _kernel(self, overload: Any) -> Callable[..., Any]:  # noqa: ANN401 - an OpOverload
        import torch  # noqa: PLC0415

        def kernel(keys: Any, *arguments: object, **keywords: object) -> Any:  # noqa: ANN401
            tensors = (one for one in arguments if isinstance(one, torch.Tensor))
            reason = self._unserved.get(next((t.get_device() for t in tensors), -1))
            if reason is None:
                return overload.redispatch(keys & self._below, *arguments, **keywords)
            self._report(reason)
            return overload._op_dk(self._plain, *arguments, **keywords)

        return kernel
