"""The call of `torchwheel build`."""

import dataclasses
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from torchwheel.check.facts import Allowed, Limits
from torchwheel.compilers.compiler_cache import CompilerCache, SchedulerAccess
from torchwheel.inspect.sdist import PROJECT, is_project
from torchwheel.matrix.forms import parse_source
from torchwheel.matrix.sections import AllowedGate, ArchsBy
from torchwheel.pipeline.frontend import Settings
from torchwheel.pipeline.sources import download_release
from torchwheel.sdist.build_folder import plain
from torchwheel.sdist.sandbox import SandboxMode
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.ownership import is_irregular
from torchwheel_runtime.text import hide_secrets, join_names, quote
from torchwheel_runtime.versions import is_requirement

_TORCH = re.compile(r"\d+\.\d+\.\d+(\+[a-z0-9.]+)?", re.ASCII)
_CUDA = re.compile(r"\d+\.\d+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class SdistRequest:
    """One call.

    Attributes:
        source: an sdist, or a project's folder.
        dist: the folder for the wheel.
        torch: the torch to build for, e.g. "2.11.0"; None for the newest known.
        toolkit: a CUDA release, e.g. "13.0"; None for the one that torch was built with.
        archs: an arch list; None for TORCH_CUDA_ARCH_LIST, else the archs of torch itself.
        archs_by: whether TORCH_CUDA_ARCH_LIST or setup.py decides on them, as in matrix.yaml; None
            for what the project says itself.
        limits: those of the gates, with the findings that are meant.
        cpu: build without CUDA.
        imports: names to import in the clean environment; empty for all that the wheel installs.
        requires: build requirements that the project does not declare.
        launcher: compiler launcher, e.g. ("sccache",).
        sandbox: whether the project's code runs in a sandbox.
        variables: variables of the project, for its setup.py.
        settings: of its build backend.
        cache: the compiler cache that it shares with other builds; None for one of its own.
        on: the scheduler of a cluster that compiles; None for this machine alone.
    """

    source: Path
    dist: Path
    torch: str | None = None
    toolkit: str | None = None
    archs: str | None = None
    archs_by: ArchsBy | None = None
    limits: Limits = dataclasses.field(default_factory=lambda: Limits(100))
    cpu: bool = False
    imports: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    sandbox: SandboxMode = "auto"
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Settings = dataclasses.field(default_factory=dict)
    cache: CompilerCache | None = None
    on: SchedulerAccess | None = None

    @property
    def name(self) -> str:
        """The name of the file or folder; "." has one, too."""
        return self.source.resolve().name

    def key(self) -> str:
        """Name of the folder that this call builds in; equal calls share it."""
        archs = (self.archs, self.archs_by)
        inputs = (self._source_key(), self.torch, self.toolkit, archs, self.cpu)
        return hashlib.sha256(repr(inputs).encode()).hexdigest()[:12]

    def build_folder(self, cache: Path) -> Path:
        """The folder that this call builds in: in torchwheel's cache, unless its path has blanks.

        torch and setuptools read CXX as several words, and nvcc passes flags on without quotes.
        """
        temporary = f"torchwheel-build-{os.getuid()}"
        places = (cache / "build", Path(tempfile.gettempdir(), temporary), Path("/tmp", temporary))  # noqa: S108 - closed to others
        return next(one for one in places if plain(str(one)) == str(one)) / f"sdist-{self.key()}"

    def cache_key(self) -> str:
        """Name of the compiler cache that builds of this project share in the sandbox."""
        return hashlib.sha256(self._source_key().encode()).hexdigest()[:12]

    def network_reason(self) -> str | None:
        """Why the build needs the network, which a sandbox has not; None if it does not."""
        if self.on:
            return "other machines compile it"
        remote = self.cache is not None and self.cache.folder is None
        return "its compiler cache is behind the network" if remote else None

    def _source_key(self) -> str:
        return sha256(self.source) if self.source.is_file() else str(self.source.resolve())


def find_source(text: str, cache: Path, progress: Progress) -> Path:
    """The sdist or folder that a call names.

    The sdist of a release (NAME==VERSION) is fetched into the cache. None of its code runs for it.
    """
    source = parse_source(text)
    if source.kind != "release" or Path(text).exists():
        return Path(text)
    path = download_release(source, None, cache, progress)
    progress.say(f"{path.name}: sha256 {sha256(path)}")
    return path


def parse_allowed(text: str) -> Allowed:
    """An allowance, written GATE:LIBRARY:REASON.

    Raises:
        UsageError: a part is missing, or the gate has no allowances.
    """
    gate, _, rest = text.partition(":")
    library, _, reason = rest.partition(":")
    if gate not in get_args(AllowedGate) or not library.strip() or not reason.strip():
        gates = join_names(get_args(AllowedGate))
        raise UsageError(
            f"--allow: expected GATE:LIBRARY:REASON with a gate of {gates}, found {quote(text)}; "
            'write e.g. "runtime:*/_C.so:calls the driver"'
        )
    return Allowed(gate, library, reason.strip())


def parse_variables(texts: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `--env NAME` and `--env NAME=VALUE`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not (equals or name in environ):
            raise UsageError(
                f"--env {text!r}: expected NAME=VALUE, or the NAME of a variable that is set"
            )
        found[name] = value if equals else environ[name]
    return found


def parse_settings(texts: Sequence[str]) -> dict[str, str | list[str]]:
    """The settings of `--config-setting KEY=VALUE`; a key that comes twice has a list, as pip's."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"--config-setting {quote(text)}: expected KEY=VALUE")
        found.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def check_request(request: SdistRequest) -> None:
    """Refuse a call that cannot be carried out, before anything is downloaded."""
    source = request.source
    if not source.exists():
        raise UsageError(
            hide_secrets(
                f"{source}: not found; expected an sdist, a project's folder or NAME==VERSION"
            )
        )
    if is_irregular(source):
        raise UsageError(f"{source}: expected a file or a folder, found neither")
    if source.is_dir() and not is_project(source):
        raise UsageError(f"{source}: {' or '.join(PROJECT)} expected in it")
    if source.suffix == ".whl":
        raise UsageError(f"{source}: a wheel is built already; an sdist or a folder expected")
    for option, text, pattern, example in (
        ("--torch", request.torch, _TORCH, "2.11.0"),
        ("--toolkit", request.toolkit, _CUDA, "13.0"),
    ):
        if text is not None and not pattern.fullmatch(text):
            raise UsageError(f"{option} {quote(text)}: a release expected, e.g. {example}")
    for text in request.requires:
        if not is_requirement(text):
            raise UsageError(f'--with {quote(text)}: a requirement expected, e.g. "numpy>=2"')
    if request.cpu and (request.toolkit or request.archs or request.archs_by):
        raise UsageError(
            "--cpu builds without CUDA: it goes without --toolkit, --archs and --archs-by"
        )
    named = "--cache" if request.cache else "--on" if request.on else ""
    if named and not request.launcher:
        raise UsageError(
            f"{named}: expected sccache on the PATH, found none; install it, and leave out "
            "--no-launcher"
        )
