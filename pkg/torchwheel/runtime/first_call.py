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
    """Decides what an operator family runs on, on each GPU that has no prebuilt kernels of it.

    It stands at the BackendSelect key, which every call passes above the backend's key and below
    autograd. The first call on such a GPU has kernels built; without them, calls on that GPU run
    in plain PyTorch, beside GPUs that have kernels. When every GPU has kernels, it steps aside.
    """

    def __init__(
        self,
        namespace: str,
        ops: Sequence[str],
        key: str,
        kinds: Mapping[int, object],
        decide: Callable[[int], bool],
    ) -> None:
        """Register the family's kernels for the BackendSelect key.

        Args:
            namespace: the operators' namespace.
            ops: their names.
            key: the dispatch key of the native kernels.
            kinds: the index of each GPU without kernels, and its kind. Equal kinds share kernels.
            decide: is called once for each kind, at the first call on one of its GPUs, with the
                GPU's index. It returns whether GPUs of that kind have kernels now. If it raises,
                the call raises, and the next one calls it again.
        """
        import torch  # noqa: PLC0415 - see prebuilt.load_library
        from torch.library import Library  # noqa: PLC0415

        keys = torch._C.DispatchKey
        self._native, self._meta = getattr(keys, key), keys.Meta
        self._plain_key = keys.CompositeExplicitAutograd
        self._below = torch._C._dispatch_keyset_full_after(keys.BackendSelect)
        self._kinds = dict(kinds)
        self._plain: set[object] = set()
        self._decide = decide
        self._lock = threading.RLock()
        self._library = Library(namespace, "IMPL")
        for op in ops:
            overload = getattr(getattr(torch.ops, namespace), op).default
            self._library.impl(op, self._kernel(overload), "BackendSelect", with_keyset=True)

    def settle(self) -> None:
        """Decide for every GPU, without a call."""
        for gpu in list(self._kinds):
            self._has_kernels(gpu)

    def _has_kernels(self, gpu: int) -> bool:
        kind = self._kinds.get(gpu)
        if kind is None or kind in self._plain:
            return kind is None
        with self._lock:  # other threads wait for a build
            kind = self._kinds.get(gpu)
            if kind is None or kind in self._plain:
                return kind is None
            if not self._decide(gpu):
                self._plain.add(kind)
                return False
            self._kinds = {index: other for index, other in self._kinds.items() if other != kind}
            if not self._kinds:
                self._library._destroy()
            return True

    def _kernel(self, overload: Any) -> Callable[..., Any]:  # noqa: ANN401 - an OpOverload
        import torch  # noqa: PLC0415

        def kernel(keys: Any, *arguments: object, **keywords: object) -> Any:  # noqa: ANN401
            # Tensors without data, of torch.compile for instance, reach no kernel.
            if keys.has(self._native) and not keys.has(self._meta):
                values = (*arguments, *keywords.values())
                tensors = (value for value in values if isinstance(value, torch.Tensor))
                if not self._has_kernels(next((tensor.get_device() for tensor in tensors), -1)):
                    return overload._op_dk(self._plain_key, *arguments, **keywords)
            return overload.redispatch(keys & self._below, *arguments, **keywords)

        return kernel
