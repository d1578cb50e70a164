"""The torch that an sdist is built for, and the toolkit and the variant that follow from it."""

import dataclasses
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from torchwheel.arch import torch_releases
from torchwheel.arch.lists import NamedArchs, arch_list, choose_archs
from torchwheel.arch.model import Arch, parse_binary_name
from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.errors import MalformedError, TorchwheelError, UsageError
from torchwheel.json_files import last_line, parse_json
from torchwheel.machine.facts import Torch
from torchwheel.matrix.sections import HostCompilerBounds, Toolkit, WheelPlatform
from torchwheel.matrix.variants import Variant, python_tag
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.importing import probe_source, run_python
from torchwheel.toolkit.lock import locked_releases
from torchwheel.validate.torch_rules import describe_torch, host_bounds, toolkit_mismatch
from torchwheel.versions import minor_version, version_numbers

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# The matrix knows fewer platforms; any Linux can build for itself.
PLATFORM = cast("WheelPlatform", f"linux_{platform.machine()}")
_SM = re.compile(r"sm_[1-9]\d{1,2}[af]?")


@dataclasses.dataclass(frozen=True)
class EnvironmentTorch:
    """The torch of an environment, as a process that has imported it describes it.

    Attributes:
        built: its version, and what it was built with.
        archs: the archs that it has machine code for.
        loaded: file names of the libraries in the process.
    """

    built: Torch
    archs: tuple[Arch, ...]
    loaded: frozenset[str]

    @property
    def release(self) -> str:
        """E.g. "2.11.0": the files on PyPI have no local version in their names."""
        return self.built.version.partition("+")[0]


@dataclasses.dataclass(frozen=True)
class _TorchFacts:
    """The facts that probe.py prints of the torch that it imported."""

    version: str
    cuda: str | None
    hip: str | None
    folder: Path
    old_abi: bool
    archs: tuple[str, ...]
    loaded: tuple[str, ...]


def import_torch(env: Environment, cwd: Path) -> EnvironmentTorch:
    """Import torch in an environment and describe it; `cwd` is a folder without a `torch`."""
    done = run_python(env, ["-c", probe_source(), "--torch"], cwd)
    try:
        facts = parse_json(last_line(done.output), _TorchFacts, "torch")
    except MalformedError as error:
        output = done.last_words("it said nothing")
        raise TorchwheelError(f"torch cannot be imported in {env.site}: {output}") from error
    return EnvironmentTorch(
        built=Torch(facts.version, facts.cuda, facts.hip, facts.folder, facts.old_abi),
        archs=tuple(parse_binary_name(flag) for flag in facts.archs if _SM.fullmatch(flag)),
        loaded=frozenset(facts.loaded),
    )


def sdist_variant(torch: EnvironmentTorch, toolkit: Toolkit | None) -> Variant:
    """The variant of a wheel that is compiled with `torch`; without a toolkit, for CPUs.

    E.g. "cu130-torch2.11-cp311", with the local version "cu130torch2.11".
    """
    minor, tag = torch.built.minor, python_tag(PYTHON)
    name = toolkit.name if toolkit else "cpu"
    return Variant(
        id=f"{name}-torch{minor}-{tag}",
        abi="aten",
        toolkit=toolkit,
        torch_release=minor,
        python_tag=tag,
        platform=PLATFORM,
    )


def newest_torch() -> str:
    """The newest known release of torch for the running Python, e.g. "2.15.0"."""
    minors = [
        minor for minor, torch in torch_releases.torch_releases().items() if PYTHON in torch.pythons
    ]
    if not minors:
        raise UsageError(f"no torch is known for Python {PYTHON}; name one: --torch RELEASE")
    return f"{max(minors, key=version_numbers)}.0"


def toolkit_for(
    torch: EnvironmentTorch,
    version: str | None,
    archs: str | None,
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Toolkit:
    """The toolkit to build with, and the archs that it compiles for.

    Args:
        torch: the torch that is built for.
        version: a CUDA release, e.g. "13.0"; None for the one that torch was built with.
        archs: an arch list; None for TORCH_CUDA_ARCH_LIST, else the archs of torch's own machine
            code, so that the wheel runs on the same GPUs as torch.
        say: is called with each arch that is left out.
        environ: the variables of this process.
    """
    built = torch.built
    if built.cuda is None:
        raise UsageError(
            f"{describe_torch(built)}: "
            "name a torch for CUDA (--torch), or build without CUDA (--cpu)"
        )
    version = version or minor_version(built.cuda)
    if problem := toolkit_mismatch("aten", "cuda", version, built):
        raise UsageError(f"--toolkit {version}: expected {problem[0]}")
    release = ToolkitRelease("cuda", version)
    choice = choose_archs(
        release,
        environ,
        argument=NamedArchs(archs, "--archs") if archs else None,
        default=NamedArchs(arch_list(torch.archs), "torch's own archs"),
    )
    for line in choice.left_out:
        say(f"left out: {line}")
    return Toolkit(
        name=release.name,
        backend="cuda",
        version=version,
        abis=("aten",),
        archs=choice.archs,
        source="pypi" if version in locked_releases() else "system",
        # An unknown release has no bounds: nvcc itself accepts or refuses the compiler.
        host_compiler=HostCompilerBounds(**(host_bounds(version) or {"gcc": "", "clang": ""})),
    )
