"""Builds kernels for the GPUs for which a universal wheel has none.

What is built is a kernel library of one operator family, for one arch. The front end that is loaded
takes it as it takes those of the wheel.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.runtime.front_end import FrontEnd
from torchwheel_runtime.runtime.parts import ChosenParts, open_built
from torchwheel_runtime.runtime.prebuilt import reason_of
from torchwheel_runtime.runtime.status import OperatorStatus, Refusal, ways_text


class UnservedGpus:
    """What each operator family runs on, on each GPU without prebuilt kernels of it."""

    def __init__(
        self,
        extension: Extension,
        package: Path,
        parts: ChosenParts,
        front_end: FrontEnd,
        families: Sequence[OperatorStatus],
        may_build: bool,
    ) -> None:
        """Build nothing yet.

        Args:
            extension: the extension.
            package: the folder of its package.
            parts: the libraries that were chosen.
            front_end: takes what is built.
            families: the operator families of the front end.
            may_build: whether kernels may be built; else the families run on plain PyTorch.
        """
        self._extension = extension
        self._package = package
        self._parts = parts
        self._front_end = front_end
        self._families: dict[str, dict[int, OperatorStatus]] = {
            family.operator: {
                gpu: dataclasses.replace(
                    family,
                    way="waiting" if may_build else "fallback",
                    library=None,
                    refusals=(Refusal("prebuilt", why),),
                )
                for gpu, why in parts.unserved(extension.operator(family.operator)).items()
            }
            for family in families
        }

    def of_family(self, name: str) -> Mapping[int, OperatorStatus]:
        """The GPUs without prebuilt kernels of a family, and what it runs on there."""
        return self._families[name]

    @property
    def uses(self) -> Mapping[int, str]:
        """What the families run on, in one line for each GPU."""
        gpus = sorted({gpu for family in self._families.values() for gpu in family})
        return {
            gpu: ways_text(
                {name: family[gpu].way for name, family in self._families.items() if gpu in family}
            )
            for gpu in gpus
        }

    @property
    def waiting(self) -> tuple[int, ...]:
        """The GPUs on which a family waits for its first call."""
        waiting = {
            gpu
            for family in self._families.values()
            for gpu, status in family.items()
            if status.way == "waiting"
        }
        return tuple(sorted(waiting))

    def settle(self, name: str, gpu: int) -> OperatorStatus:
        """Have a family's kernels built for a GPU and those like it, if that was not tried.

        Returns:
            What the family runs on there.
        """
        family = self._families[name]
        if family[gpu].way == "waiting":
            arch = self._parts.gpu(gpu).arch
            alike = [index for index in family if self._parts.gpu(index).arch == arch]
            settled = self._build(family[gpu], alike)
            family.update(dict.fromkeys(alike, settled))
        return family[gpu]

    def _build(self, status: OperatorStatus, gpus: Sequence[int]) -> OperatorStatus:
        """Build a family's kernels for GPUs of one arch, and give them to the front end."""
        from torchwheel_runtime.runtime.build import (  # noqa: PLC0415 - costs nothing until needed
            obtain_library,
        )

        gpu = self._parts.gpu(gpus[0])
        try:
            built, step = obtain_library(
                self._extension, self._package, status.operator, kernels_for=gpu
            )
            library = open_built(built, self._parts.interface)
            if not all(self._front_end.use(index, library) for index in gpus):
                raise RuntimeError("the front end takes none for this GPU")
        except Exception as error:  # any failure: PyTorch still works
            refusal = Refusal("jit build", reason_of(error))
            refusals = (*status.refusals, refusal)
            return dataclasses.replace(status, way="fallback", refusals=refusals)
        return dataclasses.replace(status, way=step, library=built.path)
