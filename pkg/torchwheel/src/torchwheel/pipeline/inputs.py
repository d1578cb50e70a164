"""State shared by all variants of a run, and the cache key of each variant."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from torchwheel import __version__
from torchwheel.check.declared import Declared, read_declared
from torchwheel.check.facts import Allowed, Limits
from torchwheel.image.engine import Engine
from torchwheel.image.recipes import python_of
from torchwheel.inspect.sbom import FILE as SBOM_FILE
from torchwheel.matrix.sections import Matrix, Toolkit
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.kernel_artifacts import KernelArtifact, digests
from torchwheel.pipeline.sources import tree_of, trial_of
from torchwheel.smoke.testing import Trial
from torchwheel.toolkit.torch_files import TorchFile, torch_file
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.arch.lists import VARIABLES, arch_list, cmake_archs
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.ninja import LAUNCHER
from torchwheel_runtime.builder.recipe import own_sources_digest
from torchwheel_runtime.claims import DLPACK_SINCE, Abi, Claims, Part
from torchwheel_runtime.console import Progress
from torchwheel_runtime.files import sha256_by_name
from torchwheel_runtime.ownership import closed_folder
from torchwheel_runtime.toolkit.lock import components


class Clock:
    """Seconds per named step, and of all since it was made; its steps are tasks of `progress`."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._made = time.monotonic()

    @property
    def total(self) -> float:
        """The seconds so far."""
        return round(time.monotonic() - self._made, 3)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        start = time.monotonic()
        try:
            with self._progress.task(name) if self._progress else contextlib.nullcontext():
                yield
        finally:
            self.seconds[name] = round(time.monotonic() - start, 3)


@dataclasses.dataclass(frozen=True)
class Run:
    """One call of `torchwheel wheels`.

    Attributes:
        matrix: the matrix.
        root: the folder of matrix.yaml.
        source: the folder of the project's sources.
        dist: the output folder.
        cache: torchwheel's cache folder.
        sources: digest of the project's files.
        launcher: compiler launcher, e.g. ("sccache",).
        progress: reports each step to the user.
        engine: runs the containers of native variants; None to build on the host.
        jobs: compilers that one variant, or one part of it, may run side by side.
        parts_at_once: parts of one universal wheel that are built at a time.
        twice: build each native variant a second time and compare the bytes.
        bundled: wheels of this repository that the project's wheels require.
        tracked: digest of those of the project's files that git knows.
        kernels: the folder with compiled kernels that are linked; None to compile them.
        kernels_only: whether to fail where these do not serve, and not to compile.
        linked: the artifacts of that folder that serve, by the id of the variant or part.
        locked: whether the wheels are tried with the packages of the project's locks.
        server: the variables by which compilers on the host find the launcher's server.
    """

    matrix: Matrix
    root: Path
    source: Path
    dist: Path
    cache: Path
    sources: str
    launcher: tuple[str, ...]
    progress: Progress
    engine: Engine | None = None
    jobs: int = 1
    parts_at_once: int = 1
    twice: bool = False
    bundled: tuple[Path, ...] = ()
    tracked: str = ""
    kernels: Path | None = None
    kernels_only: bool = False
    linked: Mapping[str, tuple[KernelArtifact, ...]] = dataclasses.field(default_factory=dict)
    locked: bool = False
    server: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        """Label of the containers that runs with this output folder start."""
        return run_id(self.dist)

    @property
    def tree(self) -> Path:
        """The folder that a build sees: the project's, or the one that it is a part of."""
        return tree_of(self.matrix, self.source)

    @property
    def below(self) -> PurePosixPath:
        """The project's folder in the tree."""
        return PurePosixPath(self.source.relative_to(self.tree))

    @functools.cached_property
    def trial(self) -> Trial:
        """What the wheels are tried with."""
        return trial_of(self.matrix, self.root, self.source, locked=self.locked)

    def variant_folder(self, variant: Variant) -> Path:
        """The cached folder of `variant`: its objects, its build log."""
        # A container builds as another user and with another compiler.
        return self.cached_folder(f"{variant.id}-contained" if self.engine else variant.id)

    def shared_folder(self, toolkit: Toolkit, builder: str) -> Path:
        """The cached folder of the objects that all variants of a toolkit link.

        `builder` names the compiler or the image, as others make other objects.
        """
        key = hashlib.sha256(f"{arch_list(toolkit.archs)} {builder}".encode()).hexdigest()[:12]
        return self.cached_folder(f"{toolkit.name}-shared-{key}")

    def cached_folder(self, name: str) -> Path:
        """A cached folder of the project, kept from run to run."""
        key = hashlib.sha256(os.fsencode(self.source)).hexdigest()[:12]
        # The user of a container may own what is in it, so nobody else enters it.
        folder = closed_folder(self.cache / "build" / f"{self.matrix.project.name}-{key}") / name
        folder.mkdir(exist_ok=True)
        return folder


def run_id(dist: Path) -> str:
    """The label of runs that write to `dist`, an absolute path."""
    return hashlib.sha256(os.fsencode(dist)).hexdigest()[:16]


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
    variant: Variant, paths: BuildPaths | None, launcher: str = "", *, kernels_only: bool = False
) -> dict[str, str]:
    """The variables that configure setup.py (builder/variables.py lists them).

    A pure-Python variant needs no paths. With `kernels_only` the build compiles no kernels.
    """
    toolkit = variant.toolkit
    if toolkit is None or paths is None:
        return {variables.ABI: variant.abi}
    switches = variables.operator_switches(os.environ)
    rocm = toolkit.backend == "rocm"
    optional = {
        variables.CXX: paths.cxx,
        variables.SYSROOT: paths.sysroot,
        LAUNCHER: launcher,
        variables.PART: variant.part,
        variables.KERNELS: os.pathsep.join(paths.kernels),
        variables.KERNELS_ONLY: "1" if kernels_only else None,
    }
    return {
        variables.ABI: variant.abi,
        variables.BACKEND: toolkit.backend,
        variables.NAME: variant.library,
        variables.TOOLKIT: toolkit.version,
        (variables.ROCM_PATH if rocm else variables.CUDA_HOME): paths.toolkit,
        (variables.ROCM_ARCH if rocm else variables.ARCH_LIST): arch_list(toolkit.archs),
        variables.TORCH: paths.torch,
        variables.TORCH_RELEASE: variant.torch_release,
        variables.PLATFORM: variant.platform,
        variables.BUILD_FOLDER: paths.build,
        variables.SHARED_FOLDER: paths.shared,
        **{name: value for name, value in optional.items() if value},
        **switches,
    }


def own_build_variables(
    toolkit: Toolkit | None, home: Path | None, cxx: Path, jobs: int, force_cuda: str = "1"
) -> dict[str, str]:
    """The variables of an ordinary project's own build, wherever it runs.

    By them the builds of torch and CMake find the toolkit in `home`, and its archs. Without a
    toolkit they build without CUDA.
    """
    found: dict[str, str] = {}
    if toolkit and toolkit.backend == "rocm":
        # hipcc itself goes by the image's ROCM_PATH.
        found = {"ROCM_HOME": str(home), VARIABLES["rocm"]: arch_list(toolkit.archs)}
    elif toolkit:
        # CMake compiles a file for CUDACXX and CUDAARCHS before it knows of torch.
        found = {
            variables.CUDA_HOME: str(home),
            "CUDACXX": f"{home}/bin/nvcc",
            VARIABLES["cuda"]: arch_list(toolkit.archs),
            "CUDAARCHS": cmake_archs(toolkit.archs),
        }
    return {
        "MAX_JOBS": str(jobs),
        variables.CXX: str(cxx),
        **found,
        # Many projects build for CUDA only if torch.cuda.is_available(). A build machine may have
        # no GPU; most of these projects heed this variable.
        "FORCE_CUDA": force_cuda if toolkit else "0",
        # torch 2.13 and later adds sccache itself; one launcher is enough.
        "TORCH_NO_COMPILER_WRAPPER": "1",
    }


def claims_of(
    variant: Variant, project_local: str | None = None, borrowed: Sequence[str] = ()
) -> Claims:
    """The claims that the wheel of `variant` will carry.

    The variant's local version follows `project_local`, the project's own. The wheel needs the
    libraries `borrowed`, which its torch has loaded.
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
        label=variant.label,
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
    """The limits of the gates for a wheel of the project; `glibc` is the newest it may need."""
    project = matrix.project
    size = matrix.gates.size_of(abi)
    if matrix.abis.ordinary:
        # What its build packs is known from the build alone, unless the matrix says it.
        name = canonicalize_name(project.name)
        own = Declared(name, project.packages) if project.packages else None
        allowed = tuple(Allowed(a.gate, a.library, a.reason) for a in matrix.own_build.allow)
        return Limits(size, glibc, own, allowed)
    return Limits(size, glibc, read_declared(root / project.source, project.name, project.packages))


def torch_requirement(run: Run, variant: Variant) -> str | None:
    """The requirement on the torch that an ordinary project is built against."""
    if not variant.ordinary:
        return None
    return torch_of(run.matrix, variant, run.cache, run.progress).requirement


def torch_of(matrix: Matrix, variant: Variant, cache: Path, progress: Progress) -> TorchFile:
    """The file of torch that an ordinary project is built against."""
    python = python_of(matrix, variant)
    rocm = (
        variant.toolkit.version if variant.toolkit and variant.toolkit.backend == "rocm" else None
    )
    return torch_file(variant.built_with, python, variant.platform, cache, progress, rocm=rocm)


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
        "sbom": SBOM_FILE,
        "platform": variant.platform,
        "toolkit": toolkit.model_dump(mode="json") if toolkit else None,
        "components": [dataclasses.asdict(component) for component in locked],
        "builder": list(builder),
        "switches": variables.operator_switches(os.environ) if variant.native else {},
        "build": run.matrix.build.model_dump(mode="json") if run.matrix.build else None,
        "torch": torch_requirement(run, variant),
        "smoke": run.matrix.smoke.model_dump(mode="json"),
        "gates": run.matrix.gates.model_dump(mode="json"),
        "glibc": newest_glibc(run, variant),
        "kernels": digests(run.linked.get(variant.id, ())),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
