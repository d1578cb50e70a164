"""Which archs to compile for, out of everything that may say so."""

import dataclasses
from collections.abc import Callable, Mapping

from torchwheel.arch import names
from torchwheel.arch.backend import Backend
from torchwheel.arch.devices import Visible, visible
from torchwheel.arch.model import Arch
from torchwheel.arch.selection import LeftOut, Selection, for_gpus
from torchwheel.arch.table import Compiler
from torchwheel.errors import UsageError

VARIABLES: Mapping[Backend, str] = {"cuda": "TORCH_CUDA_ARCH_LIST", "rocm": "PYTORCH_ROCM_ARCH"}
"""The environment variable that names archs, torch's own."""
VISIBLE = "visible GPUs"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The archs to compile for.

    Attributes:
        archs: in order, each once; there is at least one.
        source: what named them: that of the argument or of the default, the name of an environment
            variable, or "visible GPUs".
        left_out: archs that were named too, and why they are not compiled for.
    """

    archs: tuple[Arch, ...]
    source: str
    left_out: tuple[LeftOut, ...] = ()


@dataclasses.dataclass(frozen=True)
class Named:
    """An arch list and what it is from, for messages, e.g. "--archs" or "matrix.yaml"."""

    text: str
    source: str


def wanted(
    compiler: Compiler,
    environ: Mapping[str, str],
    *,
    argument: Named | None = None,
    for_this_machine: bool = False,
    default: Named | None = None,
    look: Callable[[Backend, Mapping[str, str]], Visible] = visible,
) -> Wanted:
    """The archs to compile for.

    An argument comes first, then torch's environment variable, then the visible GPUs if the build
    is for this machine, then a default.

    Args:
        compiler: what compiles.
        environ: environment variables.
        argument: what the caller asks for.
        for_this_machine: whether the visible GPUs are what a build without a list is for.
        default: what the extension is usually built for.
        look: gives the visible GPUs; asked only if they matter.

    Raises:
        UsageError: a list cannot be read, nothing says what to compile for, or the compiler can
            compile for nothing of it.
    """

    def gpus() -> Visible:
        return look(compiler.backend, environ)

    variable = VARIABLES[compiler.backend]
    listed = argument
    if listed is None and environ.get(variable):
        listed = Named(environ[variable], variable)
    why = None
    if listed is None and for_this_machine:
        seen = gpus()
        if seen.gpus:
            return _some(for_gpus({gpu.arch for gpu in seen.gpus}, compiler), VISIBLE)
        why = seen.why
    listed = listed or default
    if listed is None:
        example = f"{variable}={'9.0' if compiler.backend == 'cuda' else 'gfx942'}"
        raise UsageError(
            f"no arch to compile for: {why or 'nothing names one'}; set {variable}, e.g. {example}"
        )
    return _some(names.read(listed.text, compiler, gpus, listed.source), listed.source)


def _some(found: Selection, source: str) -> Wanted:
    if not found.archs:
        raise UsageError(f"{source}: nothing to compile for: {'; '.join(map(str, found.left_out))}")
    return Wanted(found.archs, source, found.left_out)
