"""The load order: prebuilt, JIT cache, JIT build, plain PyTorch."""

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torchwheel_runtime.builder.extension import LIBRARIES, Extension
from torchwheel_runtime.runtime import prebuilt
from torchwheel_runtime.runtime.first_call import FirstCall, Router
from torchwheel_runtime.runtime.prebuilt import has_parts
from torchwheel_runtime.runtime.status import (
    MODE_VARIABLE,
    ExtensionStatus,
    LoadStep,
    Mode,
    OperatorStatus,
    Refusal,
    Way,
    may_build,
    may_load,
    read_mode,
    warn,
)

if TYPE_CHECKING:  # an import chooses no library
    from torchwheel_runtime.loadable import LoadableFile
    from torchwheel_runtime.runtime.front_end import EntryPoints, FrontEnd
    from torchwheel_runtime.runtime.universal import ChosenParts

_LOADED: dict[str, "LoadedExtension"] = {}


def load(extension: Extension, package: Path, ops: Mapping[str, Sequence[str]]) -> ExtensionStatus:
    """Load an extension as TORCHWHEEL_MODE says. Define its operators first.

    Nothing is compiled here: operators that are not prebuilt wait for their first call on a GPU.
    Only mode "error" raises; in other modes a failure is a warning, and PyTorch does the work.

    Args:
        extension: the description of the extension.
        package: the folder of its package.
        ops: per operator family, the names of its operators that have a native kernel.
    """
    loaded = LoadedExtension(extension, package, ops, read_mode(os.environ))
    _LOADED[extension.package] = loaded
    loaded.start()
    return loaded.status()


def status_of(package: str) -> ExtensionStatus | None:
    """What an extension's operators run on now; None if it is not loaded."""
    loaded = _LOADED.get(package)
    return loaded.status() if loaded else None


def entry_points(package: str) -> ModuleType | None:
    """The extension module of entry points over DLPack that serves this process.

    None if the extension is not loaded or has no such module for this torch and Python.
    """
    loaded = _LOADED.get(package)
    return loaded.entry_points() if loaded else None


def load_now(package: str) -> None:
    """Load the prebuilt library of an imported extension without a first call; build nothing."""
    if package in _LOADED:
        _LOADED[package].load_prebuilt()


def build_now(package: str) -> ExtensionStatus | None:
    """Build operators that wait for their first call, e.g. in an image.

    Returns None if the extension is not loaded.
    """
    loaded = _LOADED.get(package)
    if loaded is None:
        return None
    loaded.build()
    return loaded.status()


class LoadedExtension:
    """An extension in this process, and what each of its operators runs on."""

    def __init__(
        self,
        extension: Extension,
        package: Path,
        ops: Mapping[str, Sequence[str]],
        mode: Mode,
    ) -> None:
        """Load nothing yet: every operator falls back. `load` says what the arguments are."""
        self.extension = extension
        self.package = package
        self.mode = mode
        self.module: ModuleType | None = None
        self._waiting: list[FirstCall] = []
        self._prebuilt: FirstCall | None = None
        self._warned: set[str] = set()
        self._routers: list[Router] = []
        self.parts: ChosenParts | None = None
        self._front_end: FrontEnd | None = None
        self._entry_points: EntryPoints | None = None
        self.operators = {
            operator.name: OperatorStatus(
                operator.name,
                tuple(f"{extension.namespace}::{op}" for op in ops[operator.name]),
                "fallback",
            )
            for operator in extension.operators
        }

    def load_prebuilt(self) -> None:
        """Load the prebuilt library now, if it waits for the first call and serves the GPUs."""
        if self._prebuilt is not None:
            self._prebuilt.settle()

    def entry_points(self) -> ModuleType | None:
        """The module of entry points over DLPack, imported if it was not."""
        if not (may_load(self.mode) and has_parts(self.package) and _has_gpu_support()):
            return None
        if self._entry_points is None:
            from torchwheel_runtime.runtime.front_end import import_entry_points  # noqa: PLC0415

            try:
                self._entry_points = import_entry_points(self.extension, self.package)
            except Exception as error:  # any failure: the entry points in Python are left
                self._warn_once(
                    f"{self.extension.package}: entry points by type in Python: "
                    f"{prebuilt.reason_of(error)}",
                    "entry points",
                )
            self._join()
        return self._entry_points.module if self._entry_points else None

    def _join(self) -> None:
        """Give the entry points the kernels of the front end, when both are loaded."""
        front_end, entry_points, parts = self._front_end, self._entry_points, self.parts
        if front_end and entry_points and parts and parts.interface == entry_points.interface:
            front_end.join(entry_points.library)

    def build(self) -> None:
        """Build every operator that waits for its first call."""
        while self._waiting:  # one that settles may have others wait
            self._waiting.pop().settle()
        for router in self._routers:
            router.settle()

    def status(self) -> ExtensionStatus:
        """What each operator runs on now."""
        ways: dict[int, dict[str, Way]] = {}
        for router in self._routers:
            for gpu, family in router.statuses.items():
                ways.setdefault(gpu, {})[family.operator] = family.way
        return ExtensionStatus(
            self.extension.package,
            self.mode,
            tuple(self.operators.values()),
            self.module,
            self.parts.lines(ways) if self.parts else (),
            tuple(sorted(gpu for gpu, of_gpu in ways.items() if "waiting" in of_gpu.values())),
        )

    def start(self) -> None:
        """Load the prebuilt library, at the first call on a GPU if this torch knows GPUs."""
        if not may_load(self.mode):
            self._do_without(self.operators, ())
            return
        library: Path | None
        choose: Callable[[bool], Callable[[], None]]
        if has_parts(self.package):
            library, choose = self.package / LIBRARIES / "front_end", self._choose_parts
        else:
            libraries = prebuilt.find_libraries(self.extension, self.package)
            # A module has functions of its own, so it is imported with the package.
            at_once = prebuilt.module_files(self.extension, self.package)
            library = libraries[0] if libraries and not at_once else None
            choose = functools.partial(self._choose, libraries)
        if library and _has_gpu_support():
            self._set_status(self.operators, way="prebuilt", library=library, refusals=())
            self._prebuilt = self._wait(self.operators, lambda: choose(True))
        else:
            choose(False)()

    def _choose_parts(self, ask_driver: bool) -> Callable[[], None]:
        """Choose the parts of a universal wheel; returns the function that loads them."""
        from torchwheel_runtime.runtime import universal  # noqa: PLC0415 - not for an import

        try:
            parts = universal.choose_parts(self.extension, self.package, ask_driver=ask_driver)
        except Exception as error:  # any failure: there are other ways
            refusal = Refusal("prebuilt", prebuilt.reason_of(error))
            return lambda: self._do_without(self.operators, (refusal,))
        return lambda: self._load_parts(parts)

    def _load_parts(self, parts: "ChosenParts") -> None:
        """Load the front end. Families wait for a build on GPUs without prebuilt kernels."""
        from torchwheel_runtime.runtime import front_end  # noqa: PLC0415 - not for an import

        self.parts = parts
        if parts.choices and not parts.has_kernels and not may_build(self.mode):
            # Without a front end, the dispatcher finds the reference by itself.
            why = "; ".join(choice.reason for choice in parts.choices)
            self._do_without(self.operators, (Refusal("prebuilt", why),))
            return
        try:
            self._front_end, self.parts = front_end.load_front_end(parts)
        except Exception as error:  # any failure: there are other ways
            self.parts = None
            self._do_without(self.operators, (Refusal("prebuilt", prebuilt.reason_of(error)),))
            return
        self._join()
        missing = self._without_kernels()
        if missing:
            text = f"{parts.library.path.name} has no kernel of it"
            self._do_without(missing, (Refusal("prebuilt", text, fault=False),))
        for name in self.operators:
            if name not in missing:
                self._serve(name, self.parts, self._front_end)

    def _serve(self, name: str, parts: "ChosenParts", front_end: "FrontEnd") -> None:
        """Set the status of a family, and have it decided on GPUs without prebuilt kernels."""
        from torchwheel_runtime.runtime.front_end import build_kernels  # noqa: PLC0415

        extension = self.extension
        way: Way = "waiting" if may_build(self.mode) else "fallback"
        unserved = {
            gpu: dataclasses.replace(
                self.operators[name], way=way, library=None, refusals=(Refusal("prebuilt", why),)
            )
            for gpu, why in parts.unserved(extension.operator(name)).items()
        }
        served = [
            one.file.path for one in parts.choices if one.file and one.gpu.index not in unserved
        ]
        if served or not unserved:
            library = next(iter(served), parts.library.path)
            self._set_status([name], way="prebuilt", library=library, refusals=())
        else:
            self.operators[name] = next(iter(unserved.values()))
        if unserved:
            build = functools.partial(build_kernels, extension, self.package, parts, front_end)
            ops = self._op_names([name])
            self._routers.append(
                Router(extension.namespace, ops, extension.dispatch, unserved, build, self._report)
            )

    def _report(self, status: OperatorStatus) -> None:
        """Say what a family runs on, on a GPU that nothing prebuilt serves."""
        if self.operators[status.operator].library is None:
            self.operators[status.operator] = status
        if status.library is not None:
            self._warn_built(status)
        elif self.mode == "error":
            raise RuntimeError(self._warning_text([status]))
        else:
            self._warn_once(self._warning_text([status]), str(status.refusals))

    def _choose(self, libraries: Sequence[Path], ask_driver: bool) -> Callable[[], None]:
        """Choose the library; returns the function that loads what was chosen."""
        refusal = prebuilt.refusal_of(self.extension, libraries, ask_driver=ask_driver)
        if refusal:
            return lambda: self._do_without(self.operators, (refusal,))
        return lambda: self._load_prebuilt(libraries)

    def _load_prebuilt(self, libraries: Sequence[Path]) -> None:
        library, self.module, refusals = prebuilt.load_first(
            self.extension, self.package, libraries
        )
        if library is None:
            self._do_without(self.operators, refusals)
            return
        self._set_status(self.operators, way="prebuilt", library=library, refusals=refusals)
        if missing := self._without_kernels():  # a library for few GPUs may lack an operator
            text = f"{library.name} has no kernel of it"
            self._do_without(missing, (Refusal("prebuilt", text, fault=False),))

    def _do_without(self, names: Iterable[str], refusals: tuple[Refusal, ...]) -> None:
        """Have operators built at their first call, or fall back."""
        names = list(names)
        waiting = may_build(self.mode) and _has_gpu_support()
        way: Way = "waiting" if waiting else "fallback"
        self._set_status(names, way=way, library=None, refusals=refusals)
        if waiting:
            for name in names:
                self._wait([name], functools.partial(self._obtain, name))
        elif self.mode in ("prebuilt", "jit") or any(refusal.fault for refusal in refusals):
            self._warn([self.operators[name] for name in names])

    def _without_kernels(self) -> list[str]:
        """The families that torch has not every kernel of."""
        import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return [
            name
            for name, status in self.operators.items()
            if not all(has(op, self.extension.dispatch) for op in status.ops)
        ]

    def _set_status(
        self,
        names: Iterable[str],
        *,
        way: Way,
        library: Path | None = None,
        refusals: tuple[Refusal, ...],
    ) -> None:
        for name in names:
            self.operators[name] = dataclasses.replace(
                self.operators[name], way=way, library=library, refusals=refusals
            )

    def _wait(self, names: Iterable[str], obtain: Callable[[], Callable[[], None]]) -> FirstCall:
        """Call `obtain` at the first call of one of these operators, then what it returns."""
        extension = self.extension
        ops = self._op_names(names)
        waiting = FirstCall(extension.namespace, ops, extension.dispatch, obtain)
        self._waiting.append(waiting)
        return waiting

    def _op_names(self, names: Iterable[str]) -> list[str]:
        """The operators of these families, without their namespace."""
        return [op.partition("::")[2] for name in names for op in self.operators[name].ops]

    def _obtain(self, name: str) -> Callable[[], None]:
        """Obtain the library of an operator; returns the function that loads it."""
        from torchwheel_runtime.runtime import operator_library  # noqa: PLC0415 - for a build

        try:
            library, step = operator_library.obtain_library(self.extension, self.package, name)
            library.prepare()
        except Exception as error:  # any failure: PyTorch still works
            reason = prebuilt.reason_of(error)
            return lambda: self._fall_back(name, Refusal("jit build", reason))
        return lambda: self._load(name, library, step)

    def _load(self, name: str, library: "LoadableFile", step: LoadStep) -> None:
        try:
            prebuilt.load_library(library)
        except Exception as error:  # any failure: PyTorch still works
            reason = f"{library.path.name}: {prebuilt.reason_of(error)}"
            self._fall_back(name, Refusal(step, reason))
        else:
            status = dataclasses.replace(self.operators[name], way=step, library=library.path)
            self.operators[name] = status
            self._warn_built(status)

    def _fall_back(self, name: str, refusal: Refusal) -> None:
        status = self.operators[name]
        failed = dataclasses.replace(status, way="fallback", refusals=(*status.refusals, refusal))
        self.operators[name] = failed
        if self.mode == "error":
            raise RuntimeError(self._warning_text([failed]))
        self._warn([failed])

    def _warn_built(self, status: OperatorStatus) -> None:
        """Say why a library was built here; once, if it is for every family the same."""
        if faults := "; ".join(map(str, status.faults)):
            self._warn_once(f"{self.extension.package}: built here, because {faults}", faults)

    def _warn_once(self, text: str, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            warn(text)

    def _warn(self, operators: Collection[OperatorStatus]) -> None:
        warn(self._warning_text(operators))

    def _warning_text(self, operators: Collection[OperatorStatus]) -> str:
        names = ", ".join(operator.operator for operator in operators)
        reasons = dict.fromkeys(
            str(refusal) for operator in operators for refusal in operator.refusals
        )
        why = (
            "; ".join(reasons) or f"{MODE_VARIABLE}={self.mode}, and this torch has no GPU support"
        )
        return (
            f"{self.extension.package}: {names} on plain PyTorch: {why}. "
            f"`python -m {self.extension.package}` says what fixes it."
        )


def _has_gpu_support() -> bool:
    """Whether this torch was built for GPUs. No GPU is used, so that the process can still fork."""
    import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

    return bool(torch.version.cuda or torch.version.hip)
