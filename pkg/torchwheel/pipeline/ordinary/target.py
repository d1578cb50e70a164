"""What a wheel is built for: a torch, a Python, a toolkit and its archs; and its claims."""

import dataclasses
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence

from torchwheel.arch.table import Compiler
from torchwheel.arch.wanted import Named, wanted
from torchwheel.claims import Claims
from torchwheel.errors import UsageError
from torchwheel.machine.versions import minor
from torchwheel.matrix import facts
from torchwheel.matrix.resolve import python_tag
from torchwheel.matrix.toolkit_model import HostCompiler, Toolkit
from torchwheel.pipeline.ordinary.installed import InstalledTorch
from torchwheel.shown import version_key
from torchwheel.toolkit.lock import locked
from torchwheel.validate.compat import host_bounds
from torchwheel.validate.torch_rules import described, mismatch

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = f"linux_{platform.machine()}"


@dataclasses.dataclass(frozen=True)
class Target:
    """What a wheel is built for.

    Attributes:
        torch: the torch it is compiled with.
        toolkit: the compiler of its CUDA code; None for a project that is built without CUDA.
    """

    torch: InstalledTorch
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
    known = [minor for minor, torch in facts.torch_releases().items() if PYTHON in torch.pythons]
    if not known:
        raise UsageError(f"no torch is known for Python {PYTHON}; name one: --torch RELEASE")
    return f"{max(known, key=version_key)}.0"


def toolkit_for(
    torch: InstalledTorch,
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
            f"{described(built)}: name a torch for CUDA (--torch), or build without CUDA (--cpu)"
        )
    version = asked or minor(built.cuda)
    if told := mismatch("aten", "cuda", version, built):
        raise UsageError(f"--toolkit {version}: expected {told[0]}")
    chosen = wanted(
        Compiler("cuda", version),
        environ,
        argument=Named(archs, "--archs") if archs else None,
        default=Named(";".join(torch.archs), "torch's own archs"),
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
        host_compiler=HostCompiler(**(host_bounds(version) or {"gcc": "", "clang": ""})),
    )
