"""What CI's jobs compile before others link it, as builds.

That are the kernels of a toolkit, once for all variants that link them, and the compile steps of
an ordinary project's variant that is too big for one job.
"""

import dataclasses
import fnmatch
from collections.abc import Sequence

from torchwheel.matrix.sections import Matrix, Toolkit, WheelPlatform
from torchwheel.matrix.variants import Variant, resolve
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import nearest, quote

_FRONT_ENDS = ("front_end", "entry_points")


@dataclasses.dataclass(frozen=True)
class KernelBuild:
    """The kernels of one toolkit for one platform, or the steps of one variant.

    Attributes:
        id: the toolkit's name, and the platform where it is not the usual one: "cu130",
            "cu130-linux_aarch64". Of an ordinary project the variant's id.
        toolkit: the toolkit.
        platform: the platform.
        variants: the builds that link these kernels.
        shards: the jobs that an ordinary project's matrix wants; 0 for others.
    """

    id: str
    toolkit: Toolkit
    platform: WheelPlatform
    variants: tuple[Variant, ...]
    shards: int = 0

    def artifacts(self, shards: int) -> dict[str, Shard]:
        """The artifacts of CI's jobs by name: "kernels-cu130", or "kernels-cu130-1of2" and on.

        `shards` is how many jobs there are, unless the matrix says it.
        """
        count = self.shards or shards
        every = [Shard(number, count) for number in range(1, count + 1)]
        return {f"kernels-{self.id}{shard.suffix}": shard for shard in every}


def kernels_id(matrix: Matrix, variant: Variant) -> str | None:
    """The id of the kernels that a variant or a part links; None if it links none."""
    if variant.toolkit is None or variant.part in _FRONT_ENDS:
        return None
    if variant.ordinary:
        return variant.id if matrix.own_build.shards > 1 else None
    usual = variant.platform == matrix.platforms[0]
    return variant.toolkit.name if usual else f"{variant.toolkit.name}-{variant.platform}"


def kernel_builds(matrix: Matrix, variants: Sequence[Variant]) -> tuple[KernelBuild, ...]:
    """The kernels that `variants` link, in the order of the variants."""
    linking: dict[str, list[Variant]] = {}
    for variant in variants:
        for build in variant.builds:
            if name := kernels_id(matrix, build):
                linking.setdefault(name, []).append(build)
    shards = matrix.own_build.shards if matrix.abis.ordinary else 0
    return tuple(
        KernelBuild(name, builds[0].toolkit, builds[0].platform, tuple(builds), shards)
        for name, builds in linking.items()
        if builds[0].toolkit
    )


def select_kernels(matrix: Matrix, names: Sequence[str]) -> tuple[KernelBuild, ...]:
    """The kernels that ids or patterns such as "cu*" name.

    Raises:
        UsageError: a name matches nothing; the line lists the nearest.
    """
    every = kernel_builds(matrix, resolve(matrix))
    chosen: set[str] = set()
    for name in names:
        matches = {build.id for build in every if fnmatch.fnmatchcase(build.id, name)}
        if not matches:
            known = [build.id for build in every]
            if matrix.abis.ordinary and not known:
                raise UsageError(
                    f"{quote(name)}: this project's variants are compiled as a whole; "
                    "build.shards in matrix.yaml says how many jobs compile one"
                )
            raise UsageError(f"no toolkit {quote(name)} has kernels here; {nearest(name, known)}")
        chosen |= matches
    return tuple(build for build in every if build.id in chosen)


def compiled_variants(matrix: Matrix, build: KernelBuild) -> tuple[Variant, ...]:
    """The variants whose objects are compiled with the kernels: one for each torch ABI.

    The objects of the others are the same but for what meets Python.
    """
    usual = matrix.containers.python if matrix.containers else None
    chosen: dict[tuple[str | None, str, str], Variant] = {}
    for variant in build.variants:
        key = (variant.part, variant.abi, variant.torch_release)
        if key not in chosen or variant.python == usual:
            chosen[key] = variant
    return tuple(chosen.values())
