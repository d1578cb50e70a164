"""What `torchwheel build` was asked for."""

import dataclasses
import hashlib
import re
from pathlib import Path

from torchwheel.errors import UsageError
from torchwheel.files import sha256
from torchwheel.pipeline.ordinary.sdist import PROJECT, is_project
from torchwheel.shown import quoted

_TORCH = re.compile(r"\d+\.\d+\.\d+(\+[a-z0-9.]+)?", re.ASCII)
_CUDA = re.compile(r"\d+\.\d+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Request:
    """One call.

    Attributes:
        source: an sdist, or a project's folder.
        dist: where the wheel goes.
        torch: the torch to build for, e.g. "2.11.0"; None for the newest known.
        toolkit: a CUDA release, e.g. "13.0"; None for the one torch was built with.
        archs: an arch list; None for TORCH_CUDA_ARCH_LIST, else the archs of torch itself.
        cpu: build without CUDA.
        imports: names to import in the clean environment; empty for what the wheel installs.
        requires: build requirements that the project does not declare.
        max_size_mib: limit of gate `size`.
        launcher: compiler launcher, e.g. ("sccache",).
    """

    source: Path
    dist: Path
    torch: str | None = None
    toolkit: str | None = None
    archs: str | None = None
    cpu: bool = False
    imports: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    max_size_mib: float = 100
    launcher: tuple[str, ...] = ()

    def key(self) -> str:
        """Names the folder that this call builds in; nobody else may at the same time."""
        source = sha256(self.source) if self.source.is_file() else str(self.source.resolve())
        facts = (source, self.torch, self.toolkit, self.archs, self.cpu)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def check(request: Request) -> None:
    """Refuse a call that cannot be carried out, before anything is fetched."""
    source = request.source
    if not source.exists():
        raise UsageError(f"{source}: not found; an sdist or a project's folder expected")
    if source.is_dir() and not is_project(source):
        raise UsageError(f"{source}: {' or '.join(PROJECT)} expected in it")
    if source.suffix == ".whl":
        raise UsageError(f"{source}: a wheel is built already; an sdist or a folder expected")
    for option, text, form, example in (
        ("--torch", request.torch, _TORCH, "2.11.0"),
        ("--toolkit", request.toolkit, _CUDA, "13.0"),
    ):
        if text is not None and not form.fullmatch(text):
            raise UsageError(f"{option} {quoted(text)}: a release expected, e.g. {example}")
    if request.cpu and (request.toolkit or request.archs):
        raise UsageError("--cpu builds without CUDA: it goes without --toolkit and --archs")
