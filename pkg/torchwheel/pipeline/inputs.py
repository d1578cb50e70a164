"""The inputs of a variant's build: setup.py's variables, the wheel's claims, the cache key."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel import __version__
from torchwheel import claims as claims_file
from torchwheel.arch.lists import arch_list
from torchwheel.builder import environment
from torchwheel.builder.recipe import own_sources_digest
from torchwheel.check.declared import Declared, read_declared
from torchwheel.check.facts import Allowed, Limits
from torchwheel.claims import DLPACK_SINCE, Abi, Claims, Part
from torchwheel.files import sha256_by_name
from torchwheel.image.recipes import python_of
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.kernel_artifacts import digests
from torchwheel.pipeline.run import Run
from torchwheel.toolkit.lock import components
from torchwheel.toolkit.torch_files import torch_file

NATIVE = "native"
"""Folder for the objects of a variant, in its cached folder."""


@dataclasses.dataclass(frozen=True)
class BuildPaths:
    """The paths that a native build reads and writes, on the host or in a container.

    Attributes:
        toolkit: the CUDA or ROCm release.
        torch: torch's headers.
        build: objects of this variant.
        shared: objects that all variants of the toolkit link.
        cxx: the C++ compiler; None for the usual one.
        sysroot: the system that the wheel is linked against; None for the running one.
        kernels: artifacts whose objects are linked.
    """

    toolkit: str
    torch: str
    build: str
    shared: str
    cxx: str | None = None
    sysroot: str | None = None
    kernels: tuple[str, ...] = ()


def build_environment(
    variant: Variant, paths: BuildPaths | None, launcher: str = ""
) -> dict[str, str]:
    """The variables that configure setup.py (builder/environment.py lists them).

    A pure-Python variant needs no paths.
    """
    toolkit = variant.toolkit
    if toolkit is None or paths is None:
        return {environment.ABI: variant.abi}
    switches = environment.operator_switches(os.environ)
    rocm = toolkit.backend == "rocm"
    optional = {
        environment.CXX: paths.cxx,
        environment.SYSROOT: paths.sysroot,
        environment.LAUNCHER: launcher,
        environment.PART: variant.part,
        environment.KERNELS: os.pathsep.join(paths.kernels),
    }
    return {
        environment.ABI: variant.abi,
        environment.BACKEND: toolkit.backend,
        environment.NAME: variant.library,
        environment.TOOLKIT: toolkit.version,
        (environment.ROCM_PATH if rocm else environment.CUDA_HOME): paths.toolkit,
        (environment.ROCM_ARCH if rocm else environment.ARCH_LIST): arch_list(toolkit.archs),
        environment.TORCH: paths.torch,
        environment.TORCH_RELEASE: variant.torch_release,
        environment.PLATFORM: variant.platform,
        environment.BUILD_FOLDER: paths.build,
        environment.SHARED_FOLDER: paths.shared,
        **{name: value for name, value in optional.items() if value},
        **switches,
    }


def kernels_only(run: Run) -> dict[str, str]:
    """The variable that forbids a build to compile kernels, if the run does."""
    return {environment.KERNELS_ONLY: "1"} if run.kernels_only else {}


def claims_of(
    variant: Variant, project_local: str | None = None, borrowed: Sequence[str] = ()
) -> Claims:
    """The claims that the wheel of `variant` will carry.

    Args:
        variant: what it is built for.
        project_local: the project's own local version; the variant's follows it.
        borrowed: libraries that the wheel needs and its torch has loaded.
    """
    toolkit = variant.toolkit
    parts = tuple(claims_of_part(part) for part in variant.parts)
    return Claims(
        variant=variant.id,
        abi=variant.abi,
        torch_release=variant.torch_release,
        backend=toolkit.backend if toolkit else None,
        toolkit=toolkit.name if toolkit else None,
        toolkit_version=toolkit.version if toolkit else None,
        archs=toolkit.archs if toolkit else (),
        project_local=project_local,
        borrowed=tuple(borrowed),
        parts=parts,
    )


def claims_of_part(part: Variant, file: str = "", digest: str = "") -> Part:
    """The claims of one library of a universal wheel, without its file if it is not built yet."""
    if part.part is None:
        raise ValueError(f"{part.id} is no part")
    kernels = part.toolkit if part.part == "kernels" else None
    floor = {"kernels": None, "entry_points": DLPACK_SINCE, "front_end": part.torch_release}
    return Part(
        kind=part.part,
        name=part.library,
        file=file,
        sha256=digest,
        torch_release=floor[part.part],
        abi="aten" if part.abi == "aten" else "stable",
        backend=kernels.backend if kernels else None,
        toolkit_version=kernels.version if kernels else None,
        archs=kernels.archs if kernels else (),
    )


def newest_glibc(run: Run, variant: Variant) -> str | None:
    """The newest C library that the wheel of `variant` may need; None for any."""
    in_container = run.engine is not None and variant.native
    containers = run.matrix.containers if in_container else None
    return containers.glibc if containers else None


def limits_of(matrix: Matrix, root: Path, abi: Abi, glibc: str | None) -> Limits:
    """The limits of the gates for a wheel of the project.

    Args:
        matrix: the matrix.
        root: its folder.
        abi: the wheel's ABI flavour.
        glibc: the newest C library that it may need; None for any.
    """
    project = matrix.project
    size = matrix.gates.size_of(abi)
    if matrix.abis.ordinary:
        # What its build packs is known from the build alone, unless the matrix says it.
        name = canonicalize_name(project.name)
        own = Declared(name, project.packages) if project.packages else None
        return Limits(size, glibc, own, allowances_of(matrix))
    return Limits(size, glibc, read_declared(root / project.source, project.name, project.packages))


def allowances_of(matrix: Matrix) -> tuple[Allowed, ...]:
    """The findings of gates that the matrix declares as meant."""
    return tuple(Allowed(one.gate, one.library, one.reason) for one in matrix.own_build.allow)


def torch_requirement(run: Run, variant: Variant) -> str | None:
    """The file of torch that an ordinary project is built against."""
    if not variant.ordinary:
        return None
    python = python_of(run.matrix, variant)
    rocm = (
        variant.toolkit.version if variant.toolkit and variant.toolkit.backend == "rocm" else None
    )
    file = torch_file(
        variant.torch_release, python, variant.platform, run.cache, run.progress, rocm=rocm
    )
    return file.requirement


def own_inputs(run: Run, variant: Variant) -> str:
    """What decides the objects of an ordinary project beside its sources; empty for others."""
    if not variant.ordinary:
        return ""
    section = run.matrix.own_build.model_dump(
        mode="json", exclude={"allow", "imports", "shards", "tests"}
    )
    return f"{torch_requirement(run, variant)} {json.dumps(section, sort_keys=True)}"


def cache_key(run: Run, variant: Variant, builder: Sequence[str]) -> str:
    """Hash of every input that can change the wheel of `variant` or its checks.

    `builder` names the host's compiler or the image.
    """
    toolkit = variant.toolkit
    locked = components(toolkit.version) if toolkit and toolkit.source == "pypi" else ()
    inputs = {
        "torchwheel": __version__,
        "own_sources": own_sources_digest(),
        "twice": run.twice and variant.native,
        "sources": run.sources,
        "tracked": run.tracked,
        "bundled": sha256_by_name(run.bundled),
        "claims": claims_file.dumps(claims_of(variant)),
        "platform": variant.platform,
        "toolkit": toolkit.model_dump(mode="json") if toolkit else None,
        "components": [dataclasses.asdict(component) for component in locked],
        "builder": list(builder),
        "switches": environment.operator_switches(os.environ) if variant.native else {},
        "build": run.matrix.build.model_dump(mode="json") if run.matrix.build else None,
        "torch": torch_requirement(run, variant),
        "smoke": run.matrix.smoke.model_dump(mode="json"),
        "gates": run.matrix.gates.model_dump(mode="json"),
        "glibc": newest_glibc(run, variant),
        "kernels": digests(run.linked.get(variant.id, ())),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
