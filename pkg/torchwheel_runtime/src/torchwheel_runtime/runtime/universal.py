"""Chooses and opens the parts of a universal wheel: a front end for torch, kernels for each GPU."""

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.arch.model import Arch
from torchwheel_runtime.arch.runs import runs_on
from torchwheel_runtime.builder.extension import Extension, Operator
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.loadable import LoadableFile, open_loadable
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.facts import Absent, Torch, split_absent
from torchwheel_runtime.machine.probe import find_driver
from torchwheel_runtime.machine.torch import find_torch
from torchwheel_runtime.runtime.choice import (
    LIBRARY_VARIABLE,
    Installation,
    KernelChoice,
    choose_front_end,
    choose_kernels,
    has_code,
    reasons_text,
)
from torchwheel_runtime.runtime.prebuilt import (
    archs_of_torch,
    gpus_of_torch,
    installed_claims,
    reason_of,
    replaced_text,
)
from torchwheel_runtime.runtime.status import WAY_TEXTS, Way, warn, ways_text
from torchwheel_runtime.text import join_names
from torchwheel_runtime.validate.at_load import describe_gpu
from torchwheel_runtime.validate.findings import drop_ignored, ignored_rules


@dataclasses.dataclass(frozen=True)
class ChosenParts:
    """The libraries for this machine. All are verified, and the kernel libraries are open.

    Attributes:
        front_end: the front end's claims.
        library: its library, open and verified.
        interface: the digest of the headers that it shares with kernel libraries.
        torch: the torch that it is for.
        unused: names of the other front ends.
        choices: the kernel library of each visible GPU, and what else was considered.
        torch_archs: the archs that torch's own kernels are for; () if they are not known.
    """

    front_end: Part
    library: LoadableFile
    interface: str
    torch: Torch
    unused: tuple[str, ...] = ()
    choices: tuple[KernelChoice, ...] = ()
    torch_archs: tuple[Arch, ...] = ()

    @property
    def has_kernels(self) -> bool:
        """Whether a GPU has a kernel library."""
        return any(choice.used for choice in self.choices)

    def lines(self, ways: Mapping[int, Mapping[str, Way]]) -> tuple[str, ...]:
        """What was chosen, and why: a line for the front end, and one for each GPU.

        Args:
            ways: for each GPU, what operator families without prebuilt kernels run on there.
        """
        unused = f"; {join_names(self.unused)}: for another torch" if self.unused else ""
        return (
            f"front end: {self.front_end.name}{unused}",
            *(self._line(choice, ways.get(choice.gpu.index, {})) for choice in self.choices),
        )

    def _line(self, choice: KernelChoice, ways: Mapping[str, Way]) -> str:
        used = (choice.used.name if choice.used else None, ways_text(ways) if ways else None)
        no_use = "torch has no code for it" if self._is_idle(choice) else WAY_TEXTS["fallback"]
        texts = ("; ".join(filter(None, used)) or no_use, reasons_text(choice.others))
        return f"{describe_gpu(choice.gpu)}: {'; '.join(filter(None, texts))}"

    def unserved(self, operator: Operator) -> Mapping[int, str]:
        """The GPUs without prebuilt kernels of an operator family, and why."""
        reasons = {}
        for choice in self.choices:
            if self._is_idle(choice):
                continue
            if choice.used is None:
                reasons[choice.gpu.index] = choice.reason
            elif not has_code(choice.used, operator, choice.gpu):
                reasons[choice.gpu.index] = (
                    f"{choice.used.name} has no code of {operator.name} for "
                    f"{describe_gpu(choice.gpu)}"
                )
        return reasons

    def _is_idle(self, choice: KernelChoice) -> bool:
        """Whether neither the wheel nor torch has code for a GPU, beside one with kernels.

        Nobody computes on such a GPU, and calls on the others need not be routed for its sake.
        """
        return (
            bool(self.has_kernels and self.torch_archs)
            and choice.used is None
            and not any(runs_on(arch, choice.gpu.arch) for arch in self.torch_archs)
        )


def choose_parts(extension: Extension, package: Path, *, ask_driver: bool) -> ChosenParts:
    """Choose the libraries for this machine, verify them, and open the kernel libraries.

    The driver is asked where there may be GPUs: a torch for CPUs needs no kernels. The environment
    may name the kernel library to use, and rules to ignore.

    Raises:
        TorchwheelError: no intact front end serves this torch.
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
        probe.glibc_version(),
        split_absent(find_driver(backend))[0] if ask_driver and backend else None,
        _forced_library(claims),
        ignored_rules(),
    )
    front_end = choose_front_end(claims.parts, here)
    if isinstance(front_end, str):
        raise TorchwheelError(front_end)
    drop_ignored(here.findings(front_end))  # prints each
    names = tuple(part.name for part in claims.parts if part.kind == "front_end")
    library, interface = verify_part(front_end, package)
    library.prepare()
    chosen = ChosenParts(
        *(front_end, library, interface, torch),
        unused=tuple(name for name in names if name != front_end.name),
    )
    if not ask_driver or backend is None:
        return chosen
    # The driver's library may be absent in a container, and variables that hide GPUs may have
    # changed since torch read them.
    gpus = gpus_of_torch(backend) or visible_gpus(backend).gpus
    fitting = [choose_kernels(claims.parts, here, gpu) for gpu in gpus]
    choices = _open_kernels(fitting, package, interface)
    for choice in choices:
        if choice.used:
            drop_ignored(here.findings(choice.used, (choice.gpu,)))
    return dataclasses.replace(chosen, choices=choices, torch_archs=archs_of_torch())


def _forced_library(claims: Claims) -> str | None:
    """The kernel library that the environment names; an unknown name is a warning."""
    name = os.environ.get(LIBRARY_VARIABLE)
    names = [part.name for part in claims.parts if part.kind == "kernels"]
    if not name or name in names:
        return name or None
    warn(
        f"{LIBRARY_VARIABLE}: expected one of {join_names(names)}, found {name}; "
        "the best library for each GPU is used"
    )
    return None


def _open_kernels(
    choices: Sequence[KernelChoice], package: Path, interface: str
) -> tuple[KernelChoice, ...]:
    """The choices, each with the first of its libraries that can be used, open."""
    opened: dict[str, LoadableFile] = {}
    faults: dict[str, str] = {}

    def first(choice: KernelChoice) -> Part | None:
        for part in choice.parts:
            if part.name not in opened and part.name not in faults:
                try:
                    library, _ = verify_part(part, package, interface)
                    opened[part.name] = _load(library)
                except TorchwheelError as error:
                    faults[part.name] = str(error)
            if part.name in opened:
                return part
        return None

    used = [(choice, first(choice)) for choice in choices]
    return tuple(
        dataclasses.replace(
            choice,
            refused={**choice.refused, **faults},
            used=part,
            file=opened[part.name] if part else None,
        )
        for choice, part in used
    )


def load_built(library: LoadableFile, interface: str) -> LoadableFile:
    """Load a kernel library that was built here, for a front end of that interface.

    Raises:
        TorchwheelError: it is for another front end, or the loader refuses it.
    """
    _, _, found = _scan(library)
    _require_interface(found, library.path.name, interface)
    return _load(library)


def _load(library: LoadableFile) -> LoadableFile:
    try:
        library.load()
    except OSError as error:
        name = library.path.name
        raise TorchwheelError(f"{name}: cannot be opened: {reason_of(error)}") from error
    return library


def verify_part(
    part: Part, package: Path, interface: str | None = None
) -> tuple[LoadableFile, str]:
    """The open library of a part and its interface. Nothing of it runs.

    Its claims have the hash of the file. For a kernel library, `interface` is the front end's.

    Raises:
        TorchwheelError: the file is not the one that was installed, or does not fit the front end.
    """
    try:
        library = open_loadable(package.parent / part.file)
        sha256, takes_kernels, found = _scan(library)
    except OSError as error:
        raise TorchwheelError(f"{part.file}: cannot be read: {error.strerror}") from error
    if sha256 != part.sha256:
        why = replaced_text(part.sha256, sha256, package.name)
        raise TorchwheelError(f"{part.file}: {why}")
    if part.kind != "kernels" and not takes_kernels:
        raise TorchwheelError(
            f"{part.file}: expected a front end that has torchwheel_use_kernels, found none; "
            f"reinstall {package.name}"
        )
    return library, _require_interface(found, part.file, interface)


_BLOCK, _LONGEST = 1 << 16, 128
_USE = b"torchwheel_use_kernels\0"
_INTERFACE = re.compile(rb"torchwheel_interface=(\w+)\0")


def _scan(library: LoadableFile) -> tuple[str, bool, str | None]:
    """Read a library once, in blocks: its memory would take longer to get than to hash.

    Returns:
        The SHA-256 of its bytes, whether it has the function that takes kernel libraries, and the
        digest of the headers that both sides were compiled with, if it is there.
    """
    digest, takes_kernels, interface, block = hashlib.sha256(), False, None, b""
    with library.open() as file:
        while new := file.read(_BLOCK):
            digest.update(new)
            block = block[-_LONGEST:] + new
            takes_kernels = takes_kernels or _USE in block
            interface = interface or _INTERFACE.search(block)
    return digest.hexdigest(), takes_kernels, interface[1].decode() if interface else None


def _require_interface(found: str | None, name: str, expected: str | None) -> str:
    """The interface of the library `name`: the front end's, or any where None is expected."""
    if found is None or expected not in (None, found):
        wanted = f"the front end's interface, {expected}" if expected else "an interface"
        says = f"expected {wanted}, found {found or 'none'}; use one version of both"
        raise TorchwheelError(f"{name}: {says}")
    return found
