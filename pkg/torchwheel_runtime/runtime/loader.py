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
from torchwheel_runtime.runtime.prebuilt import has_parts, load_problem
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
    from torchwheel_runtime.runtime.front_end import EntryPoints, FrontEnd, UnservedGpus
    from torchwheel_runtime.runtime.parts import ChosenParts

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
    loaded.start(lambda driver: load_problem(extension, ask_driver=driver))
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
        """Load nothing yet: every operator falls back.

        Args:
            extension: the description of the extension.
            package: the folder of its package.
            ops: per operator family, the names of its operators that have a native kernel.
            mode: the mode, which says what may be tried.
        """
        self.extension = extension
        self.package = package
        self.mode = mode
        self.module: ModuleType | None = None
        self._waiting: list[FirstCall] = []
        self._prebuilt: FirstCall | None = None
        self._warned: set[str] = set()
        self._routers: list[Router] = []
        self._unserved: UnservedGpus | None = None
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
        unserved = self._unserved
        return ExtensionStatus(
            self.extension.package,
            self.mode,
            tuple(self.operators.values()),
            self.module,
            self.parts.lines(unserved.uses if unserved else {}) if self.parts else (),
            unserved.waiting if unserved else (),
        )

    def start(self, check: Callable[[bool], str | None]) -> None:
        """Load the prebuilt library, at the first call on a GPU if this torch knows GPUs.

        Args:
            check: returns why the library must not be loaded, if it must not. Its argument says
                whether the driver may be asked.
        """
        if not may_load(self.mode):
            self._do_without(self.operators, ())
            return
        if has_parts(self.package):
            self._start_with_parts()
            return
        libraries = prebuilt.find_libraries(self.extension, self.package)
        # A module has functions of its own, so it is imported with the package.
        of_module = prebuilt.module_files(self.extension, self.package)
        if libraries and _has_gpu_support() and not of_module:
            self._set_status(self.operators, way="prebuilt", library=libraries[0], refusals=())
            self._prebuilt = self._wait(
                self.operators, lambda: self._choose(libraries, lambda: check(True))
            )
        else:
            self._choose(libraries, lambda: check(False))()

    def _start_with_parts(self) -> None:
        """Choose among the parts of a universal wheel, at the first call if there may be GPUs."""
        front_ends = self.package / LIBRARIES / "front_end"
        if _has_gpu_support():
            self._set_status(self.operators, way="prebuilt", library=front_ends, refusals=())
            self._prebuilt = self._wait(self.operators, lambda: self._choose_parts(ask_driver=True))
        else:
            self._choose_parts(ask_driver=False)()

    def _choose_parts(self, *, ask_driver: bool) -> Callable[[], None]:
        """Choose the parts; returns the function that loads them."""
        from torchwheel_runtime.runtime.parts import (  # noqa: PLC0415 - not for an import
            choose_parts,
        )

        try:
            parts = choose_parts(self.extension, self.package, ask_driver=ask_driver)
        except Exception as error:  # any failure: there are other ways
            refusal = Refusal("prebuilt", prebuilt.reason_of(error))
            return lambda: self._do_without(self.operators, (refusal,))
        return lambda: self._load_parts(parts)

    def _load_parts(self, parts: "ChosenParts") -> None:
        """Load the front end. Families wait for a build on GPUs without prebuilt kernels."""
        from torchwheel_runtime.runtime.front_end import (  # noqa: PLC0415 - not for an import
            UnservedGpus,
            load_front_end,
        )

        self.parts = parts
        if parts.choices and not parts.kernels and not may_build(self.mode):
            # Without a front end, the dispatcher finds the reference by itself.
            why = "; ".join(choice.reason(parts.faults) for choice in parts.choices)
            self._do_without(self.operators, (Refusal("prebuilt", why),))
            return
        try:
            front_end, self.parts = load_front_end(parts)
            self._front_end = front_end
        except Exception as error:  # any failure: there are other ways
            self.parts = None
            self._do_without(self.operators, (Refusal("prebuilt", prebuilt.reason_of(error)),))
            return
        self._join()
        missing = [name for name in self.operators if not self._has_kernels(name)]
        if missing:
            text = f"{parts.library.path.name} has no kernel of it"
            self._do_without(missing, (Refusal("prebuilt", text, fault=False),))
        families = [status for name, status in self.operators.items() if name not in missing]
        self._unserved = UnservedGpus(
            self.extension, self.package, self.parts, front_end, families, may_build(self.mode)
        )
        for family in families:
            self._route(family.operator, self.parts, self._unserved)

    def _route(self, name: str, parts: "ChosenParts", unserved: "UnservedGpus") -> None:
        """Set the status of a family, and have it decided on GPUs without prebuilt kernels."""
        waiting = unserved.of_family(name)
        served = [library.file for gpu, library in parts.kernels.items() if gpu not in waiting]
        if served or not waiting:
            library = next(iter(served), parts.library.path)
            self._set_status([name], way="prebuilt", library=library, refusals=())
        else:
            self.operators[name] = next(iter(waiting.values()))
        if waiting:
            kinds = {gpu: parts.gpu(gpu).arch for gpu in waiting}
            decide = functools.partial(self._decide, unserved, name)
            ops = self._op_names([name])
            extension = self.extension
            router = Router(extension.namespace, ops, extension.dispatch, kinds, decide)
            self._routers.append(router)

    def _decide(self, unserved: "UnservedGpus", name: str, gpu: int) -> bool:
        """Have a family's kernels built for a GPU; False if it runs on plain PyTorch there."""
        status = unserved.settle(name, gpu)
        if self.operators[name].library is None:
            self.operators[name] = status
        if status.library is not None:
            self._warn_built(status)
            return True
        if self.mode == "error":
            raise RuntimeError(self._warning_text([status]))
        self._warn_once(self._warning_text([status]), str(status.refusals))
        return False

    def _choose(self, libraries: Sequence[Path], check: prebuilt.LoadCheck) -> Callable[[], None]:
        """Choose the library; returns the function that loads what was chosen."""
        refusal = prebuilt.refusal_of(libraries, check)
        if refusal:
            return lambda: self._do_without(self.operators, (refusal,))
        return lambda: self._load_prebuilt(libraries)

    def _load_prebuilt(self, libraries: Sequence[Path]) -> None:
        library, self.module, refusals = prebuilt.load_first(
            self.extension, self.package, libraries
        )
        if library is not None:
            self._set_status(self.operators, way="prebuilt", library=library, refusals=refusals)
            # A library for few GPUs may lack an operator.
            refusals = (Refusal("prebuilt", f"{library.name} has no kernel of it", fault=False),)
        missing = [
            name for name in self.operators if library is None or not self._has_kernels(name)
        ]
        if missing:
            self._do_without(missing, refusals)

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

    def _has_kernels(self, name: str) -> bool:
        import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return all(has(op, self.extension.dispatch) for op in self.operators[name].ops)

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
        from torchwheel_runtime.runtime.build import (  # noqa: PLC0415 - costs nothing until needed
            obtain_library,
        )

        try:
            library, step = obtain_library(self.extension, self.package, name)
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
        faults = "; ".join(str(refusal) for refusal in status.refusals if refusal.fault)
        if faults:
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
