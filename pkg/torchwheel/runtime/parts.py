"""Loads the parts of a universal wheel: the front end for torch, and kernels for each GPU."""

import ctypes
import dataclasses
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.arch.devices import visible_gpus
from torchwheel.builder.extension import Extension
from torchwheel.claims import Claims, Part
from torchwheel.errors import TorchwheelError
from torchwheel.machine import probe
from torchwheel.machine.discovery import find_driver
from torchwheel.machine.facts import Absent, split_absent
from torchwheel.machine.torch import find_torch
from torchwheel.runtime.choice import (
    LIBRARY_VARIABLE,
    Installation,
    KernelChoice,
    choose_front_end,
    choose_kernels,
)
from torchwheel.runtime.prebuilt import installed_claims, load_library


@dataclasses.dataclass(frozen=True)
class PartsPlan:
    """The libraries that were chosen and verified, before any of them is loaded.

    Attributes:
        front_end: the front end's file.
        kernels: the kernel library's file for each GPU that has one.
        choices: what was considered for each visible GPU.
        refused: libraries that were refused after the choice, each in one line.
    """

    front_end: Path
    kernels: Mapping[int, Path]
    choices: tuple[KernelChoice, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What was chosen, and why: a line for the front end, and one for each GPU."""
        files = {gpu: file.name for gpu, file in self.kernels.items()}
        return (
            f"front end: {self.front_end.name}",
            *(choice.text(files.get(choice.gpu.index)) for choice in self.choices),
            *self.refused,
        )

    @property
    def unserved(self) -> Mapping[int, str]:
        """The GPUs without kernels, and why."""
        return {
            choice.gpu.index: "; ".join((*self.refused, choice.reason))
            for choice in self.choices
            if choice.gpu.index not in self.kernels
        }


def plan_parts(
    extension: Extension,
    package: Path,
    *,
    ask_driver: bool,
    environ: Mapping[str, str] = os.environ,
) -> PartsPlan:
    """Choose the libraries for this machine, and verify the bytes of each that is chosen.

    Args:
        extension: the extension.
        package: the folder of its package.
        ask_driver: whether there may be GPUs; a torch for CPUs needs no kernels.
        environ: may name the kernel library to use.

    Raises:
        TorchwheelError: no front end serves this torch, or no kernel library any visible GPU.
    """
    claims = installed_claims(extension.package)
    if claims is None or not claims.parts:
        raise TorchwheelError(f"{extension.package}: its claims name no parts; reinstall it")
    torch = find_torch()
    if isinstance(torch, Absent):
        raise TorchwheelError(torch.reason)
    backend = torch.backend
    here = Installation(
        extension.package,
        torch,
        split_absent(probe.glibc_version())[0],
        split_absent(find_driver(backend))[0] if ask_driver and backend else None,
        _forced(claims, environ),
    )
    chosen = choose_front_end(claims.parts, here)
    if isinstance(chosen, str):
        raise TorchwheelError(chosen)
    front_end = verified_file(chosen, package)
    if not ask_driver or backend is None:
        return PartsPlan(front_end, {})
    gpus = visible_gpus(backend).gpus
    choices = tuple(choose_kernels(claims.parts, here, gpu) for gpu in gpus)
    kernels, refused = _verify_kernels(choices, package)
    plan = PartsPlan(front_end, kernels, choices, refused)
    if choices and not kernels:
        raise TorchwheelError("; ".join(dict.fromkeys(plan.unserved.values())))
    return plan


def _forced(claims: Claims, environ: Mapping[str, str]) -> str | None:
    name = environ.get(LIBRARY_VARIABLE)
    names = [part.name for part in claims.parts if part.kind == "kernels"]
    if not name or name in names:
        return name or None
    warnings.warn(
        f"{LIBRARY_VARIABLE}={name}: one of {', '.join(names)} expected; the best one is taken",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _verify_kernels(
    choices: Sequence[KernelChoice], package: Path
) -> tuple[Mapping[int, Path], tuple[str, ...]]:
    """The first intact library for each GPU, and a line for each that is not intact."""
    files: dict[str, Path | None] = {}
    refused: list[str] = []
    kernels: dict[int, Path] = {}
    for choice in choices:
        for part in choice.parts:
            if part.name not in files:
                try:
                    files[part.name] = verified_file(part, package)
                except TorchwheelError as error:
                    files[part.name] = None
                    refused.append(str(error))
            if file := files[part.name]:
                kernels[choice.gpu.index] = file
                break
    return kernels, tuple(refused)


def verified_file(part: Part, package: Path) -> Path:
    """The file of a part, if it has the bytes that the wheel's claims name."""
    file = package.parent / part.file
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise TorchwheelError(f"{part.file}: cannot be read: {error.strerror}") from error
    if digest != part.sha256:
        raise TorchwheelError(f"{part.file}: is not the file that was installed; reinstall it")
    return file


_USE = "torchwheel_use_kernels"
_INTERFACE = "torchwheel_interface"


def load_parts(plan: PartsPlan) -> tuple[Mapping[int, str], Mapping[int, ctypes.CDLL]]:
    """Load the front end and give it the kernels of each GPU.

    Returns:
        The GPUs that got none, and why; the kernel libraries of the others.

    Raises:
        Exception: the front end does not load; torch's message says what it lacks.
    """
    load_library(plan.front_end)
    front_end = ctypes.CDLL(str(plan.front_end))
    unserved = dict(plan.unserved)
    opened: dict[Path, ctypes.CDLL | str] = {}
    kernels: dict[int, ctypes.CDLL] = {}
    for gpu, file in plan.kernels.items():
        if file not in opened:
            opened[file] = _open(file, _interface(front_end))
        library = opened[file]
        if isinstance(library, str):
            unserved[gpu] = library
        else:
            kernels[gpu] = library
    for gpu in give_kernels(front_end, kernels):
        unserved[gpu] = f"{plan.front_end.name} takes no kernels for GPU {gpu}"
        del kernels[gpu]
    return unserved, kernels


def give_kernels(front_end: ctypes.CDLL, kernels: Mapping[int, ctypes.CDLL]) -> list[int]:
    """Give a front end the kernel library of each GPU; returns the GPUs that it did not take."""
    use = getattr(front_end, _USE)
    use.argtypes, use.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_bool
    interface = _interface(front_end)
    return [
        gpu
        for gpu, library in kernels.items()
        if _interface(library) != interface or not use(gpu, library._handle)
    ]


def _interface(library: ctypes.CDLL) -> bytes:
    """The text with the digest of the headers that both sides were compiled with."""
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, _INTERFACE)))


def _open(file: Path, interface: bytes) -> ctypes.CDLL | str:
    """A kernel library, or why it cannot be used with a front end of that interface."""
    try:
        library = ctypes.CDLL(str(file))
        if _interface(library) == interface:
            return library
    except (OSError, ValueError) as error:
        return f"{file.name}: {error}"
    return f"{file.name}: was built for another front end"
