"""State shared by all variants of a run: the cache key and the environment of each."""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel import claims as claims_file
from torchwheel.builder import environment
from torchwheel.claims import Claims
from torchwheel.console import Progress
from torchwheel.files import sha256_by_name
from torchwheel.image.engine import Engine
from torchwheel.matrix.sections import Matrix, Toolkit
from torchwheel.matrix.variants import Variant
from torchwheel.toolkit.lock import components


@dataclasses.dataclass(frozen=True)
class BuildPaths:
    """Where a build finds its toolkit, torch's headers and its folders."""

    toolkit: str
    torch: str
    build: str
    shared: str
    cxx: str | None = None
    sysroot: str | None = None


def build_environment(
    variant: Variant, places: BuildPaths | None, launcher: str = ""
) -> dict[str, str]:
    """The environment of setup.py (see builder/environment.py); a pure variant needs no places."""
    toolkit = variant.toolkit
    if toolkit is None or variant.torch_release is None or places is None:
        return {environment.ABI: variant.abi}
    rocm = toolkit.backend == "rocm"
    optional = {
        environment.CXX: places.cxx,
        environment.SYSROOT: places.sysroot,
        environment.LAUNCHER: launcher,
    }
    return {
        environment.ABI: variant.abi,
        environment.BACKEND: toolkit.backend,
        environment.NAME: variant.id,
        environment.TOOLKIT: toolkit.version,
        (environment.ROCM_PATH if rocm else environment.CUDA_HOME): places.toolkit,
        (environment.ROCM_ARCH if rocm else environment.ARCH_LIST): ";".join(toolkit.archs),
        environment.TORCH: places.torch,
        environment.TORCH_RELEASE: variant.torch_release,
        environment.PLATFORM: variant.platform,
        environment.BUILD_FOLDER: places.build,
        environment.SHARED_FOLDER: places.shared,
        **{name: value for name, value in optional.items() if value},
    }


class Clock:
    """Seconds per named step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - begun, 3)


@dataclasses.dataclass(frozen=True)
class Run:
    """One call of the pipeline.

    Attributes:
        matrix: the matrix.
        root: the folder of matrix.yaml.
        dist: the output folder.
        cache: torchwheel's cache folder.
        sources: digest of the project's files.
        launcher: compiler launcher, e.g. ("sccache",).
        progress: where to say what is being done.
        engine: what native variants are built in containers with; None to build on the host.
        jobs: compilers one variant may run side by side.
        twice: whether each native variant is built again, to see that it gives the same bytes.
        bundled: wheels of this repository that the project's wheels require.
    """

    matrix: Matrix
    root: Path
    dist: Path
    cache: Path
    sources: str
    launcher: tuple[str, ...]
    progress: Progress
    engine: Engine | None = None
    jobs: int = 1
    twice: bool = False
    bundled: tuple[Path, ...] = ()

    @property
    def id(self) -> str:
        """Names the runs that write to this output folder, on the containers they start."""
        return run_id(self.dist)

    @property
    def source(self) -> Path:
        """The project's folder."""
        return (self.root / self.matrix.project.source).resolve()

    def kept(self, variant: Variant) -> Path:
        """A folder for what outlives a build of `variant`: objects, the log."""
        # Another user writes in a container, and another compiler.
        return self._kept(f"{variant.id}-contained" if self.engine else variant.id)

    def shared(self, toolkit: Toolkit, place: str) -> Path:
        """A folder for the objects that all variants of a toolkit link, built in one `place`."""
        archs = hashlib.sha256(f"{';'.join(toolkit.archs)} {place}".encode()).hexdigest()[:12]
        return self._kept(f"{toolkit.name}-shared-{archs}")

    def _kept(self, name: str) -> Path:
        place = hashlib.sha256(str(self.source).encode()).hexdigest()[:12]
        folder = self.cache / "build" / f"{self.matrix.project.name}-{place}" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def run_id(dist: Path) -> str:
    """Names the runs that write to `dist`, an absolute path."""
    return hashlib.sha256(str(dist).encode()).hexdigest()[:16]


def claims_of(variant: Variant) -> Claims:
    """What the wheel of `variant` will say of itself."""
    toolkit = variant.toolkit
    return Claims(
        variant=variant.id,
        abi=variant.abi,
        torch=variant.torch,
        backend=toolkit.backend if toolkit else None,
        toolkit=toolkit.version if toolkit else None,
        archs=toolkit.archs if toolkit else (),
        local=variant.local,
    )


def newest_glibc(run: Run, variant: Variant) -> str | None:
    """The newest C library that the wheel of `variant` may need; None for any."""
    in_container = run.engine is not None and variant.toolkit is not None
    containers = run.matrix.containers if in_container else None
    return containers.glibc if containers else None


def key_of(run: Run, variant: Variant, place: Sequence[str]) -> str:
    """Names everything that decides a variant's wheel and the proofs of it.

    `place` says where it is built: the host's compiler, or the image.
    """
    toolkit = variant.toolkit
    locked = components(toolkit.version) if toolkit and toolkit.source == "pypi" else ()
    facts = {
        "torchwheel": __version__,
        "twice": run.twice and variant.toolkit is not None,
        "sources": run.sources,
        "bundled": sha256_by_name(run.bundled),
        "claims": claims_file.dumps(claims_of(variant)),
        "platform": variant.platform,
        "toolkit": toolkit.model_dump(mode="json") if toolkit else None,
        "components": [dataclasses.asdict(component) for component in locked],
        "place": list(place),
        "smoke": run.matrix.smoke.model_dump(mode="json"),
        "gates": run.matrix.gates.model_dump(mode="json"),
        "glibc": newest_glibc(run, variant),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
