"""State shared by all variants of a run: the matrix, the folders, how builds are made."""

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchwheel.arch.lists import arch_list
from torchwheel.console import Progress
from torchwheel.image.engine import Engine
from torchwheel.matrix.sections import Matrix, Toolkit
from torchwheel.matrix.variants import Variant
from torchwheel.ownership import closed_folder
from torchwheel.pipeline.kernel_artifacts import KernelArtifact


class Clock:
    """Seconds per named step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        start = time.monotonic()
        try:
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
        locks: the folder of the locks that the wheels are tried with; None to take what an index
            gives.
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
    locks: Path | None = None
    server: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        """Label of the containers that runs with this output folder start."""
        return run_id(self.dist)

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
