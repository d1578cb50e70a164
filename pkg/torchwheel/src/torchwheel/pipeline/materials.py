"""What the libraries of a variant are made with: its toolkit, torch's headers, compiler and image.

Versions and hashes are those of the locks. The compiler is asked for its own where it runs.
"""

import platform
from collections.abc import Iterator

from torchwheel.image.images import BuiltImage
from torchwheel.inspect.sbom import Material, Role, pypi_material
from torchwheel.matrix.sections import Toolkit
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.inputs import Run, torch_of
from torchwheel.pipeline.repair import BuildMaterials
from torchwheel_runtime.arch.model import BRANDS
from torchwheel_runtime.toolkit.headers import source_of_headers
from torchwheel_runtime.toolkit.lock import components

_ROLES: dict[str, Role] = {
    "nvidia-cuda-nvcc": "compiler",
    "nvidia-nvvm": "compiler",
    "nvidia-cuda-runtime": "runtime",
}
"""Of the components of a toolkit that are more than headers."""


def materials_of(
    run: Run, variant: Variant, cxx: str, image: BuiltImage | None = None
) -> BuildMaterials:
    """The materials of a variant or a part, which `cxx` compiles, in the image if there is one."""
    locked = list(toolkit_materials(variant.toolkit, variant.platform))
    if variant.ordinary:
        torch = torch_of(run.matrix, variant, run.cache, run.progress)
        locked.append(pypi_material("headers", "torch", torch.version, torch.sha256))
    elif variant.part in (None, "front_end"):
        # Kernels and entry points include no header of torch's.
        source = source_of_headers(variant.torch_release, run.cache, run.progress)
        locked.append(pypi_material("headers", "torch", source.version, source.sha256))
    if image:
        name = image.reference.rpartition("/")[2].partition(":")[0]
        locked.append(Material("image", name, sha256=image.digest))
    return BuildMaterials(tuple(locked), cxx, static_cxx=not variant.ordinary)


def toolkit_materials(toolkit: Toolkit | None, target: str) -> Iterator[Material]:
    """A toolkit for machines of `target`, e.g. "linux_aarch64", and what it was put together of."""
    if toolkit is None:
        return
    yield Material("toolkit", BRANDS[toolkit.backend], toolkit.version)
    for part in components(toolkit.version) if toolkit.source == "pypi" else ():
        role = _ROLES.get(part.project, "headers")
        runs_on = f"linux_{platform.machine()}" if role == "compiler" else target
        yield pypi_material(role, part.project, part.version, part.hash_for(runs_on))
    if toolkit.packages:
        # The day of the packages decides their versions; it is in the image's digest.
        for package in toolkit.packages.install:
            name, suite = package.partition("=")[0], toolkit.packages.suite
            role = "headers" if name.endswith("-dev") else "compiler"
            yield Material(role, name, purl=f"pkg:deb/debian/{name}?distro={suite}")
