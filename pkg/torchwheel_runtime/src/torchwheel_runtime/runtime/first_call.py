"""Loads or builds operators at their first call on a GPU.

A kernel in Python, an interceptor, is registered for each operator. The first call on a GPU obtains
the operator's library, loads it, removes the interceptor and makes the call again. Without a
library, the dispatcher then finds the composite default of the operator, which is plain PyTorch.
Calls of other threads wait in the interceptor until the library is loaded.
"""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchwheel_runtime.runtime.status import OperatorStatus

_KEPT: list[object] = []
"""The kernels of all interceptors that were removed. The dispatcher has no lock: a thread may have
looked one up, and wait for the GIL to call it."""


class _Call:
    """A call in an interceptor: the operator's overload, and the keys that are left below.

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
        """Make it on the kernels below."""
        return self.overload.redispatch(self.below, *self.arguments, **self.keywords)

    def make_again(self) -> object:
        """Make it from the top."""
        return self.overload(*self.arguments, **self.keywords)


class _Interceptor:
    """A kernel in Python of one operator at the BackendSelect key.

    Every call passes that key, above the backend's key and below autograd.

    Attributes:
        route: makes a call on the backend.
    """

    route: Callable[[_Call], object]

    def __init__(self, namespace: str, op: str, key: str) -> None:
        """Register the kernel; `key` is the backend's dispatch key."""
        import torch  # noqa: PLC0415 - see prebuilt.load_library

        keys_of_torch = torch._C.DispatchKey
        native, meta = getattr(keys_of_torch, key), keys_of_torch.Meta
        below = torch._C._dispatch_keyset_full_after(keys_of_torch.BackendSelect)
        self._namespace, self._op = namespace, op

        def kernel(keys: Any, *arguments: object, **keywords: object) -> object:  # noqa: ANN401
            overload = getattr(getattr(torch.ops, namespace), op).default
            call = _Call(overload, keys & below, arguments, keywords)
            # Tensors without data, of torch.compile for instance, reach no kernel.
            reaches_one = keys.has(native) and not keys.has(meta)
            return self.route(call) if reaches_one else call.make_below()

        self._registration = self._register(kernel, with_keyset=True)

    def _register(self, kernel: Callable[..., object], *, with_keyset: bool) -> Any:  # noqa: ANN401
        """Register a kernel; an import waits, and torch.library.Library takes twice the time.

        Returns:
            What keeps the kernel registered.
        """
        import torch  # noqa: PLC0415

        registration: Any = torch._C._dispatch_library("IMPL", self._namespace, "", __file__, 0)
        registration.impl(self._op, "BackendSelect", kernel, with_keyset)
        return registration

    def remove(self) -> None:
        """Let calls pass by the kernel, which is kept for threads that have looked it up."""
        import torch  # noqa: PLC0415
        from torch.library import fallthrough_kernel  # noqa: PLC0415

        if hasattr(torch.library, "get_kernel"):
            name = f"{self._namespace}::{self._op}"
            _KEPT.append(torch.library.get_kernel(name, "BackendSelect"))
            self._registration.reset()
            return
        # torch before 2.9 frees what is not registered any more, so it stays, below another.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*operators may also be overridden", UserWarning)
            _KEPT.append(
                (self._registration, self._register(fallthrough_kernel, with_keyset=False))
            )


_CLOSED: dict[tuple[str, str], _Interceptor] = {}
"""The interceptors where calls wait, by namespace and operator."""


def _take_interceptors(
    namespace: str, ops: Sequence[str], key: str, route: Callable[[_Call], object]
) -> Mapping[tuple[str, str], _Interceptor]:
    """Interceptors with that route: those where calls wait for a library, or new ones."""
    interceptors = {}
    for op in ops:
        interceptor = _CLOSED.pop((namespace, op), None) or _Interceptor(namespace, op, key)
        interceptor.route = route
        interceptors[namespace, op] = interceptor
    return interceptors


class FirstCall:
    """The interceptors of the operators of one family, until the first call."""

    def __init__(
        self, namespace: str, ops: Sequence[str], key: str, obtain: Callable[[], Callable[[], None]]
    ) -> None:
        """Make the interceptors of these operators, which are defined already.

        `key` is the dispatch key of the native kernels. `obtain` obtains the library, once, while
        other threads wait, and returns the function that loads it.
        """
        self._obtain = obtain
        self._lock = threading.RLock()
        self._is_settled = self._is_loading = False
        self._interceptors = _take_interceptors(namespace, ops, key, self._route)

    def settle(self) -> None:
        """Obtain and load the library, if that was not done; other threads wait."""
        with self._lock:
            if not self._is_settled:
                load = self._obtain()
                self._is_settled = self._is_loading = True
                _CLOSED.update(self._interceptors)
                try:
                    load()
                finally:
                    self._is_loading = False
                    for op in self._interceptors:
                        if closed := _CLOSED.pop(op, None):
                            closed.remove()

    def _route(self, call: _Call) -> object:
        with self._lock:
            if self._is_loading:  # this thread loads the library
                return call.make_below()
            self.settle()
        return call.make_again()


class Router:
    """Decides what an operator family runs on, on each GPU that has no prebuilt kernels of it.

    The first call on such a GPU has kernels built; without them, calls on that GPU run in plain
    PyTorch, beside GPUs that have kernels. When every GPU has kernels, it removes its interceptors.

    Attributes:
        statuses: what the family runs on, on each of these GPUs.
    """

    def __init__(
        self,
        namespace: str,
        ops: Sequence[str],
        key: str,
        statuses: "Mapping[int, OperatorStatus]",
        build: "Callable[[OperatorStatus, int], Mapping[int, OperatorStatus]]",
        report: "Callable[[OperatorStatus], None]",
    ) -> None:
        """Take the interceptors of the family.

        `build` builds kernels for a GPU where the family waits, once; it returns what the family
        runs on there, and on the other GPUs that share the kernels. `report` hears of what the
        family runs on, at the first call on a GPU. If it raises, the call raises, and the next one
        calls it again.
        """
        import torch  # noqa: PLC0415 - see prebuilt.load_library

        self._plain_key = torch._C.DispatchKey.CompositeExplicitAutograd
        self.statuses = dict(statuses)
        self._plain: set[int] = set()
        self._build, self._report = build, report
        self._lock = threading.RLock()
        self._interceptors = _take_interceptors(namespace, ops, key, self._route)

    def settle(self) -> None:
        """Decide for every GPU, without a call."""
        for gpu in list(self.statuses):
            self._has_kernels(gpu)

    def _has_kernels(self, gpu: int) -> bool:
        status = self.statuses.get(gpu)
        if status is None or status.library or gpu in self._plain:
            return gpu not in self._plain
        with self._lock:  # other threads wait for a build
            if self.statuses[gpu].way == "waiting":
                self.statuses.update(self._build(self.statuses[gpu], gpu))
                if all(status.library for status in self.statuses.values()):
                    for interceptor in self._interceptors.values():
                        interceptor.remove()
            self._report(self.statuses[gpu])
            if self.statuses[gpu].library is None:
                self._plain.add(gpu)
        return gpu not in self._plain

    def _route(self, call: _Call) -> object:
        import torch  # noqa: PLC0415

        values = (*call.arguments, *call.keywords.values())
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        if self._has_kernels(next((tensor.get_device() for tensor in tensors), -1)):
            return call.make_below()
        return call.overload._op_dk(self._plain_key, *call.arguments, **call.keywords)
