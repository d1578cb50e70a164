"""The CI runners that build a variant and test it."""

from collections.abc import Iterator

from torchwheel.matrix.document import MatrixFinding
from torchwheel.matrix.sections import Machines, Matrix
from torchwheel.matrix.variants import Variant
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import join_names, quote

PURE = "any"
"""The platform of wheels without machine code."""


def build_runner(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The labels of the runner that builds `variant`."""
    return _machines_of(matrix, variant).build


def gpu_runner(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The labels of the runner on whose GPU `variant` must run; empty if there is none."""
    machines = matrix.runners.get(variant.platform)
    if machines is None or not variant.native:
        return ()
    rocm = variant.toolkit is not None and variant.toolkit.backend == "rocm"
    return (machines.rocm if rocm else machines.cuda) or ()


def smoke_runner(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The labels of the runner that tests `variant`: one with its GPU, else one without."""
    machines = _machines_of(matrix, variant)
    return gpu_runner(matrix, variant) or machines.cpu or machines.build


def with_gpu_runners(matrix: Matrix, gpu: str) -> Matrix:
    """The matrix as it is for "yes"; for "no" without its runners that have a GPU.

    A pull request's code must not reach these machines, so its wheels are tested without a GPU.
    """
    if gpu not in {"yes", "no"}:
        raise UsageError(f'--gpu: expected "yes" or "no", found {quote(gpu)}; say one of them')
    if gpu == "yes":
        return matrix
    runners = {
        platform: machines.model_copy(update={"cuda": None, "rocm": None})
        for platform, machines in matrix.runners.items()
    }
    return matrix.model_copy(update={"runners": runners})


def runners_complete(matrix: Matrix) -> Iterator[MatrixFinding]:
    """If the matrix declares runners, exactly the platforms that are built have them."""
    if not matrix.runners:
        return
    built = [*matrix.platforms, *([PURE] if matrix.abis.pure else [])]
    for platform in built:
        if platform not in matrix.runners:
            yield ("runners",), f'key "{platform}" is missing: its wheels are built too'
    for platform, machines in matrix.runners.items():
        if platform not in built:
            yield ("runners", platform), f"nothing is built for it; built: {join_names(built)}"
        for backend in ("cuda", "rocm"):
            if platform == PURE and getattr(machines, backend):
                yield ("runners", platform, backend), "a wheel without GPU code needs no GPU"


def _machines_of(matrix: Matrix, variant: Variant) -> Machines:
    try:
        return matrix.runners[variant.platform]
    except KeyError:
        raise UsageError(
            f'no machine for {variant.id}: the matrix has no section "runners"; '
            f"expected e.g. runners: {{{variant.platform}: {{build: [ubuntu-24.04]}}}}"
        ) from None
