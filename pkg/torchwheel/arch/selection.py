"""Archs narrowed to those that a compiler can compile, with the reason for each that it cannot."""

import dataclasses
from collections.abc import Iterable

from torchwheel.arch.model import Arch, CudaArch, RocmArch
from torchwheel.arch.runs import machine_code_runs_on, ptx_runs_on
from torchwheel.arch.toolkit_releases import ToolkitRelease, releases_able
from torchwheel.errors import UsageError


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """An arch, or a GPU's arch, that is not compiled for, and why."""

    arch: Arch
    why: str

    def __str__(self) -> str:
        return f"{self.arch}: {self.why}"


@dataclasses.dataclass(frozen=True)
class ArchSelection:
    """Archs to compile for, in order, each once; and those that were left out."""

    archs: tuple[Arch, ...]
    left_out: tuple[LeftOut, ...] = ()

    def whole(self, where: str) -> tuple[Arch, ...]:
        """The archs, for a build that must have them all; `where` is what named them.

        Raises:
            UsageError: one was left out.
        """
        if self.left_out:
            raise UsageError(f"{where}: {'; '.join(map(str, self.left_out))}")
        return self.archs


def merge_archs(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """Archs of one backend in order, each once; with PTX where it is listed with and without."""
    ptx: dict[Arch, bool] = {}
    for arch in archs:
        if isinstance(arch, CudaArch):
            plain = dataclasses.replace(arch, ptx=False)
            ptx[plain] = ptx.get(plain, False) or arch.ptx
        else:
            ptx[arch] = False
    return tuple(_with_ptx(arch) if ptx[arch] else arch for arch in sorted(ptx))


def select_compilable(archs: Iterable[Arch], toolkit: ToolkitRelease) -> ArchSelection:
    """Split archs into those that a release can compile and the others."""
    known = {arch.name for arch in toolkit.archs}
    wanted = merge_archs(archs)
    return ArchSelection(
        tuple(arch for arch in wanted if arch.name in known),
        tuple(LeftOut(arch, _why(arch, toolkit)) for arch in wanted if arch.name not in known),
    )


def archs_for_gpus(gpus: Iterable[Arch], toolkit: ToolkitRelease) -> ArchSelection:
    """What to compile so that each GPU has code: machine code if possible, else the newest PTX.

    The driver compiles PTX at its first use, for a GPU that is newer than the compiler.

    Args:
        gpus: archs of GPUs, all of the toolkit's backend.
        toolkit: the release that compiles.
    """
    known = [arch for arch in toolkit.archs if not (isinstance(arch, CudaArch) and arch.suffix)]
    found: list[Arch] = []
    left_out = []
    for gpu in sorted(set(gpus)):
        if direct := [arch for arch in known if machine_code_runs_on(arch, gpu)]:
            found.append(max(direct, key=_closeness))
        elif older := [arch for arch in known if ptx_runs_on(arch, gpu)]:
            found.append(_with_ptx(max(older)))
        else:
            left_out.append(LeftOut(gpu, _why(gpu, toolkit)))
    return ArchSelection(merge_archs(found), tuple(left_out))


def _closeness(arch: Arch) -> tuple[bool, Arch]:
    """A processor's own code before a generic target's; the newest of NVIDIA's."""
    return not (isinstance(arch, RocmArch) and arch.generic), arch


def _with_ptx(arch: Arch) -> Arch:
    return dataclasses.replace(arch, ptx=True) if isinstance(arch, CudaArch) else arch


def _why(arch: Arch, toolkit: ToolkitRelease) -> str:
    return f"{toolkit} cannot compile for it; {releases_able(arch, toolkit.backend)} can"
