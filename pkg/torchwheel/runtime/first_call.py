"""Builds operators at their first call on a GPU.

A kernel in Python is registered in place of the native one. Its first call obtains the operator's
library, removes the Python kernel, loads the library and makes the call again. Without a library,
the dispatcher then finds the composite default of the operator, which is plain PyTorch. Calls of
other threads wait at a gate until the exchange is complete.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_KEPT: list[object] = []
"""Every kernel in Python that was removed: the function, and what torch has of it. The dispatcher
has no lock: a thread may have looked a kernel up, and wait for the GIL to call it."""


def _keep(name: str, key: str, kernel: Callable[..., object]) -> None:
    """Keep a kernel in Python that is about to be removed.

    torch before 2.9 gives out nothing that keeps its part alive. There a thread that is so far may
    read what was freed.
    """
    import torch  # noqa: PLC0415 - see prebuilt.load_library

    of_torch = getattr(torch.library, "get_kernel", None)
    _KEPT.append((kernel, of_torch(name, key) if of_torch else None))


class _Call:
    """A call at a gate: the operator's overload, and the keys that are left below the gate.

    No dataclass: it would take the import of a package a third of a millisecond.
    """

    def __init__(
        self,
        overload: Any,  # noqa: ANN401 - an OpOverload
        below: Any,  # noqa: ANN401 - a DispatchKeySet
        arguments: tuple[object, ...],
        keywords: dict[str, object],
    ) -> None:
        self.overload, self.below = overload, below
        self.arguments, self.keywords = arguments, keywords

    def make_below(self) -> object:
        """Make it on the kernels below the gate."""
        return self.overload.redispatch(self.below, *self.arguments, **self.keywords)

    def make_again(self) -> object:
        """Make it from the top."""
        return self.overload(*self.arguments, **self.keywords)


class _Gate:
    """A kernel in Python of one operator at the BackendSelect key.

    Every call passes that key, above the backend's key and below autograd.

    Attributes:
        route: makes a call on the backend.
    """

    def __init__(self, namespace: str, op: str, key: str, route: Callable[[_Call], object]) -> None:
        """Register the kernel; `key` is the backend's dispatch key."""
        import torch  # noqa: PLC0415 - see prebuilt.load_library
        from torch.library import Library  # noqa: PLC0415

        keys_of_torch = torch._C.DispatchKey
        native, meta = getattr(keys_of_torch, key), keys_of_torch.Meta
        below = torch._C._dispatch_keyset_full_after(keys_of_torch.BackendSelect)
        overload = getattr(getattr(torch.ops, namespace), op).default

        def kernel(keys: Any, *arguments: object, **keywords: object) -> object:  # noqa: ANN401
            call = _Call(overload, keys & below, arguments, keywords)
            # Tensors without data, of torch.compile for instance, reach no kernel.
            reaches_one = keys.has(native) and not keys.has(meta)
            return self.route(call) if reaches_one else call.make_below()

        self.route = route
        self._name, self._kernel = f"{namespace}::{op}", kernel
        self._library = Library(namespace, "IMPL")
        self._library.impl(op, kernel, "BackendSelect", with_keyset=True)

    def remove(self) -> None:
        """Remove the kernel."""
        _keep(self._name, "BackendSelect", self._kernel)
        self._library._destroy()


_CLOSED: dict[tuple[str, str], _Gate] = {}
"""The gates at which calls wait, by namespace and operator."""


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

        self._namespace, self._ops, self._key = namespace, ops, key
        self._obtain = obtain
        self._lock = threading.RLock()
        self._exchanging = False
        self._library: Library | None = Library(namespace, "IMPL")
        self._kernels = {op: self._python_kernel(namespace, op) for op in ops}
        for op, kernel in self._kernels.items():
            self._library.impl(op, kernel, key)

    def settle(self) -> None:
        """Obtain and load the library, if that was not done; other threads wait."""
        with self._lock:
            if self._library is not None:
                load = self._obtain()
                self._exchanging = True
                for op in self._ops:
                    gate = _Gate(self._namespace, op, self._key, self._wait)
                    _CLOSED[self._namespace, op] = gate
                # The dispatcher takes one kernel for each key.
                for op, kernel in self._kernels.items():
                    _keep(f"{self._namespace}::{op}", self._key, kernel)
                self._library._destroy()
                self._library = None
                try:
                    load()
                finally:
                    self._exchanging = False
                    for op in self._ops:
                        if closed := _CLOSED.pop((self._namespace, op), None):
                            closed.remove()

    def _wait(self, call: _Call) -> object:
        """Make a call of another thread when the exchange is complete."""
        with self._lock:
            if self._exchanging:  # this thread loads the library
                return call.make_below()
        return call.make_again()

    def _python_kernel(self, namespace: str, op: str) -> Callable[..., object]:
        def python_kernel(*arguments: object, **keywords: object) -> object:
            self.settle()
            import torch  # noqa: PLC0415

            return getattr(getattr(torch.ops, namespace), op)(*arguments, **keywords)

        return python_kernel


class Router:
    """Decides what an operator family runs on, on each GPU that has no prebuilt kernels of it.

    It stands at a gate, and takes over the one at which calls wait while the library is loaded. The
    first call on such a GPU has kernels built; without them, calls on that GPU run in plain
    PyTorch, beside GPUs that have kernels. When every GPU has kernels, it steps aside.
    """

    def __init__(
        self,
        namespace: str,
        ops: Sequence[str],
        key: str,
        kinds: Mapping[int, object],
        decide: Callable[[int], bool],
    ) -> None:
        """Take the gates of the family.

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

        self._plain_key = torch._C.DispatchKey.CompositeExplicitAutograd
        self._kinds = dict(kinds)
        self._plain: set[object] = set()
        self._decide = decide
        self._lock = threading.RLock()
        self._gates: list[_Gate] = []
        for op in ops:
            if gate := _CLOSED.pop((namespace, op), None):
                gate.route = self._route
            self._gates.append(gate or _Gate(namespace, op, key, self._route))

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
                for gate in self._gates:
                    gate.remove()
            return True

    def _route(self, call: _Call) -> object:
        import torch  # noqa: PLC0415

        values = (*call.arguments, *call.keywords.values())
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        if self._has_kernels(next((tensor.get_device() for tensor in tensors), -1)):
            return call.make_below()
        return call.overload._op_dk(self._plain_key, *call.arguments, **call.keywords)
