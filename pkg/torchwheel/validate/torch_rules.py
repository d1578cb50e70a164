"""Rules about torch: its range, its backend, its CUDA or ROCm release."""

from torchwheel.arch.backend import BRANDS, Backend
from torchwheel.claims import Abi, Claims
from torchwheel.machine.torch_model import Torch
from torchwheel.machine.versions import minor, numbers
from torchwheel.validate import compat
from torchwheel.validate.finding import Finding
from torchwheel.validate.torch_range import contains


def described(torch: Torch) -> str:
    """E.g. "torch 2.11.0+cu130, built with CUDA 13.0"."""
    built = f"with ROCm {minor(torch.hip)}" if torch.hip else f"with CUDA {torch.cuda}"
    return f"torch {torch.version}, built {built if torch.backend else 'for CPUs only'}"


def torch_range(claims: Claims, torch: Torch | None, package: str) -> Finding | None:
    """Torch is there, and in the range that the library is for."""
    install = f"`pip install 'torch{claims.torch}'`"
    if torch is None:
        return Finding("torch", f"torch{claims.torch}", "none", install)
    if contains(claims.torch, torch.version):
        return None
    return Finding(
        "torch",
        f"torch{claims.torch}, which {package} is built for",
        f"torch {torch.version}",
        f"{install}, or install {another(package)} that is for torch {torch.minor}",
    )


def backend(claims: Claims, torch: Torch, package: str) -> Finding | None:
    """Torch is built for the GPUs that the library has kernels for.

    A stable library loads in a torch without GPU support too, and lies idle there.
    """
    here = torch.backend
    if claims.backend is None or here == claims.backend:
        return None
    name = BRANDS[claims.backend]
    if here is not None:
        fix = f"install {another(package)} with kernels for {BRANDS[here]}, or a torch for {name}"
    elif claims.backend == "cuda":
        release = torch.version.partition("+")[0]
        fix = f"`pip install --force-reinstall torch=={release}` brings PyPI's, which has CUDA"
    else:
        fix = "install a torch for ROCm: pytorch.org's page of installation names the command"
    return Finding(
        "backend",
        f"a torch built for {name}, which {package} has its kernels for",
        described(torch),
        fix,
        blocks=here is not None or claims.abi == "aten",
    )


def built_with(claims: Claims, torch: Torch, package: str) -> Finding | None:
    """The toolkit that a finished library was built with goes with torch's release."""
    if claims.toolkit is None or claims.backend is None:
        return None
    told = mismatch(claims.abi, claims.backend, claims.toolkit, torch)
    if told is None:
        return None
    expected, shared = told
    name = BRANDS[claims.backend]
    return Finding(
        "toolkit-torch",
        expected,
        f"a library built with {name} {claims.toolkit}",
        f"install {another(package)} built with {name} {shared}",
    )


def mismatch(abi: Abi, backend: Backend, release: str, torch: Torch) -> tuple[str, str] | None:
    """What is expected, and the shared part of the release; None where they go together.

    A torch for other GPUs is another rule's.
    """
    told = torch.built_with(backend)
    if not told or abi == "pure":
        return None
    if minor(told) == minor(release):  # most often; no table is read
        return None
    size, why = compat.shared(backend, abi)
    if numbers(told)[:size] == numbers(release)[:size]:
        return None
    shared = ".".join(map(str, numbers(told)[:size]))
    name = BRANDS[backend]
    return f"{name} {shared}, that of {described(torch)} ({why})", shared


def another(package: str) -> str:
    """Words for a wheel of the package that this machine has not."""
    return f"a wheel of {package} (`pip index versions {package}` lists them)"
