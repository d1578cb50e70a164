"""Selects the archs that a toolkit release can compile, and says why it omits the others."""

import dataclasses
from collections.abc import Iterable

from torchwheel_runtime.arch.model import Arch, CudaArch, RocmArch
from torchwheel_runtime.arch.runs import machine_code_runs_on, ptx_runs_on
from torchwheel_runtime.arch.toolkit_releases import ToolkitRelease, releases_able
from torchwheel_runtime.errors import UsageError


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """An arch that is not compiled for, and the reason."""

    arch: Arch
    why: str

    def __str__(self) -> str:
        return f"{self.arch}: {self.why}"


@dataclasses.dataclass(frozen=True)
class ArchSelection:
    """Archs to compile for, in order and each once, and the archs that are left out."""

    archs: tuple[Arch, ...]
    left_out: tuple[LeftOut, ...] = ()

    def require_all(self, where: str) -> tuple[Arch, ...]:
        """The archs of a build that needs them all; `where` is the source of the list.

        Raises:
            UsageError: an arch is left out.
        """
        if self.left_out:
            raise UsageError(f"{where}: {'; '.join(map(str, self.left_out))}")
        return self.archs


def merge_archs(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """Archs of one backend in order, each once; with PTX if any entry of that arch has it."""
    ptx: dict[Arch, bool] = {}
    for arch in archs:
        without = arch.with_ptx(False)
        ptx[without] = ptx.get(without, False) or arch.ptx
    return tuple(arch.with_ptx(ptx[arch]) for arch in sorted(ptx))


def select_compilable(archs: Iterable[Arch], toolkit: ToolkitRelease) -> ArchSelection:
    """Split archs into those that a release can compile and the others."""
    compilable = {arch.name for arch in toolkit.archs}
    merged = merge_archs(archs)
    return ArchSelection(
        tuple(arch for arch in merged if arch.name in compilable),
        tuple(LeftOut(a, _reason(a, toolkit)) for a in merged if a.name not in compilable),
    )


def archs_for_gpus(gpus: Iterable[Arch], toolkit: ToolkitRelease) -> ArchSelection:
    """The archs to compile so that each GPU has code: machine code if possible, else newest PTX.

    A GPU that is newer than the toolkit needs PTX, which its driver compiles at the first use.

    Args:
        gpus: archs of GPUs, all of the toolkit's backend.
        toolkit: the release that compiles.
    """
    plain = [arch for arch in toolkit.archs if not (isinstance(arch, CudaArch) and arch.suffix)]
    archs: list[Arch] = []
    left_out = []
    for gpu in sorted(set(gpus)):
        if direct := [arch for arch in plain if machine_code_runs_on(arch, gpu)]:
            archs.append(max(direct, key=_closeness))
        elif older := [arch for arch in plain if ptx_runs_on(arch, gpu)]:
            archs.append(max(older).with_ptx())
        else:
            left_out.append(LeftOut(gpu, _reason(gpu, toolkit)))
    return ArchSelection(merge_archs(archs), tuple(left_out))


def _closeness(arch: Arch) -> tuple[bool, Arch]:
    """Ranks a processor's own code before a generic target's, and newer archs before older ones."""
    return not (isinstance(arch, RocmArch) and arch.generic), arch


def _reason(arch: Arch, toolkit: ToolkitRelease) -> str:
    return f"{toolkit} cannot compile for it; {releases_able(arch, toolkit.backend)} can"
