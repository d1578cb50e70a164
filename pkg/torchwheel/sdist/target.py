"""What an sdist's wheel is built for: a torch, a Python, a toolkit and its archs."""

import dataclasses
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchwheel.arch.compilers import Compiler
from torchwheel.arch.lists import NamedArchs, choose_archs
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.machine.facts import Torch
from torchwheel.matrix import torch_releases
from torchwheel.matrix.sections import HostCompilerBounds, Toolkit
from torchwheel.matrix.variants import python_tag
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.importing import run
from torchwheel.toolkit.lock import locked
from torchwheel.validate.torch_rules import describe_torch, host_bounds, mismatch
from torchwheel.versions import minor_version, version_key

_CHILD = Path(__file__).with_name("installed_child.py")
_ARCH = re.compile(r"sm_(\d+)(\d[af]?)")


@dataclasses.dataclass(frozen=True)
class EnvironmentTorch:
    """A torch that can be imported.

    Attributes:
        built: its version, and what it was built with.
        archs: the archs it holds machine code for, e.g. ("7.5", "8.0").
        loaded: file names of the libraries in a process that has imported it.
    """

    built: Torch
    archs: tuple[str, ...]
    loaded: frozenset[str]

    @property
    def release(self) -> str:
        """E.g. "2.11.0": PyPI's files of torch do not have the local version in their names."""
        return self.built.version.partition("+")[0]


def torch_of(env: Environment, cwd: Path) -> EnvironmentTorch:
    """Ask the environment's Python; `cwd` is any folder without a `torch` in it."""
    done = run(env, ["-c", _CHILD.read_text(encoding="utf-8")], cwd)
    try:
        facts = json.loads(done.stdout.splitlines()[-1])
        built = {name: facts[name] for name in ("version", "cuda", "hip", "old_abi")}
        return EnvironmentTorch(
            built=Torch(folder=Path(facts["folder"]), **built),
            archs=tuple(_arch(flag) for flag in facts["archs"] if _ARCH.fullmatch(flag)),
            loaded=frozenset(facts["loaded"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        said = " ".join(done.stderr.split()[-40:]) or "it said nothing"
        raise TorchwheelError(f"torch cannot be imported in {env.site}: {said}") from error


def _arch(flag: str) -> str:
    """An arch as the matrix writes it: "9.0a" for sm_90a."""
    found = _ARCH.fullmatch(flag)
    return f"{found[1]}.{found[2]}" if found else flag


PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = f"linux_{platform.machine()}"


@dataclasses.dataclass(frozen=True)
class SdistTarget:
    """What a wheel is built for.

    Attributes:
        torch: the torch it is compiled with.
        toolkit: the compiler of its CUDA code; None for a project that is built without CUDA.
    """

    torch: EnvironmentTorch
    toolkit: Toolkit | None

    @property
    def local(self) -> str:
        """The local version of the wheel, e.g. "cu130torch2.11" or "cputorch2.11"."""
        return f"{self.toolkit.name if self.toolkit else 'cpu'}torch{self.torch.built.minor}"

    @property
    def variant(self) -> str:
        """E.g. "cu130-torch2.11-cp311"."""
        name = self.toolkit.name if self.toolkit else "cpu"
        return f"{name}-torch{self.torch.built.minor}-{python_tag(PYTHON)}"

    def claims(self, own_local: str | None, borrowed: Sequence[str]) -> Claims:
        """What the wheel will say of itself.

        Args:
            own_local: the local version that the project gives itself; ours is appended.
            borrowed: libraries that it needs and torch has loaded.
        """
        return Claims(
            variant=self.variant,
            abi="aten",
            torch=f"=={self.torch.built.minor}.*",
            backend="cuda" if self.toolkit else None,
            toolkit=self.toolkit.version if self.toolkit else None,
            archs=self.toolkit.archs if self.toolkit else (),
            local=f"{own_local}.{self.local}" if own_local else self.local,
            borrowed=tuple(borrowed),
        )


def usual_torch() -> str:
    """The newest known release of torch for the running Python, e.g. "2.15.0"."""
    known = [
        minor for minor, torch in torch_releases.torch_releases().items() if PYTHON in torch.pythons
    ]
    if not known:
        raise UsageError(f"no torch is known for Python {PYTHON}; name one: --torch RELEASE")
    return f"{max(known, key=version_key)}.0"


def toolkit_for(
    torch: EnvironmentTorch,
    asked: str | None,
    archs: str | None,
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Toolkit:
    """The toolkit to build with, and the archs it compiles for.

    Args:
        torch: the torch that is built for.
        asked: a CUDA release, e.g. "13.0"; by default the one torch was built with.
        archs: an arch list; by default TORCH_CUDA_ARCH_LIST, and then the archs that torch itself
            has machine code for, so that the wheel runs wherever torch does.
        say: hears of archs that are left out.
        environ: the variables of this process.
    """
    built = torch.built
    if built.cuda is None:
        raise UsageError(
            f"{describe_torch(built)}: "
            "name a torch for CUDA (--torch), or build without CUDA (--cpu)"
        )
    version = asked or minor_version(built.cuda)
    if told := mismatch("aten", "cuda", version, built):
        raise UsageError(f"--toolkit {version}: expected {told[0]}")
    chosen = choose_archs(
        Compiler("cuda", version),
        environ,
        argument=NamedArchs(archs, "--archs") if archs else None,
        default=NamedArchs(";".join(torch.archs), "torch's own archs"),
    )
    for one in chosen.left_out:
        say(f"left out: {one}")
    return Toolkit(
        name=f"cu{version.replace('.', '')}",
        backend="cuda",
        version=version,
        abis=("aten",),
        archs=tuple(map(str, chosen.archs)),
        source="pypi" if version in locked() else "system",
        # Of a release that is not known, any: a probe kernel asks nvcc itself.
        host_compiler=HostCompilerBounds(**(host_bounds(version) or {"gcc": "", "clang": ""})),
    )
