"""One fix for all findings that come of the installed torch: another torch, or another wheel.

Taken one by one, their fixes lead in a circle: the torch with CUDA lacks the old strings, the wheel
for its CUDA does not exist.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

from torchwheel_runtime.arch.model import BRANDS, Backend, runtime_major
from torchwheel_runtime.arch.releases import ToolkitRelease, TorchFacts, torch_releases
from torchwheel_runtime.doctor.case import Case, Package
from torchwheel_runtime.doctor.native import NativeLibrary, is_of_torch
from torchwheel_runtime.inspect.elf import is_cxx
from torchwheel_runtime.machine.facts import Machine, Torch
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import install_command, range_contains
from torchwheel_runtime.versions import major_version, minor_version, version_numbers

OLD_STRING = re.compile(r"(?<=[KREPi])Ss")
"""std::string in the mangled names of GCC before release 5."""
_NEW_STRING = "__cxx11"
PYTORCH = "https://download.pytorch.org/whl"
"""PyTorch's own index of builds, by toolkit."""
_SO_MAJOR = re.compile(r"\.so\.(\d{1,3})", re.ASCII)
_GPU_NAME = re.compile(r"cuda|hip", re.IGNORECASE)
_OF_RELEASE = ("libcudart.", "libcublas", "libnvrtc.", "libnvJitLink.", "libamdhip64.")
"""Libraries whose soname has the major release of the toolkit."""
_OF_GPU_TORCH: tuple[tuple[Backend, tuple[str, ...]], ...] = (
    (
        "cuda",
        (
            *("libtorch_cuda", "libc10_cuda", "libcudart.", "libcublas", "libcudnn", "libcufft"),
            *("libcurand", "libcusolver", "libcusparse", "libnccl", "libnvrtc", "libnvJitLink"),
        ),
    ),
    (
        "rocm",
        (
            *("libtorch_hip", "libc10_hip", "libamdhip64.", "librocblas", "libhipblas"),
            *("libMIOpen", "librccl"),
        ),
    ),
)
"""Libraries that come with a torch for these GPUs."""
OF_DRIVER = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""Libraries that come with NVIDIA's driver."""


def comes_with_other_torch(soname: str, torch: Torch | None) -> bool:
    """Whether a library comes with a torch for GPUs, and not with the installed one."""
    return torch is not None and comes_with(soname, torch) is False


def comes_with(soname: str, torch: Torch) -> bool | None:
    """Whether a library comes with this torch; None if it comes with no torch for GPUs."""
    for backend, prefixes in _OF_GPU_TORCH:
        if not soname.startswith(prefixes):
            continue
        if torch.backend != backend:
            return False
        found = _SO_MAJOR.search(soname)
        built = runtime_major(backend, torch.built_with(backend) or "")
        return not (soname.startswith(_OF_RELEASE) and found is not None and found[1] != built)
    return None


def is_idle(case: Case) -> bool:
    """Whether kernels for GPUs are not missed: torch is for CPUs, and so is the machine."""
    machine = case.machine
    if machine.torch is None or machine.torch.backend:
        return False
    return case.package.imported.how == "imported" and not (machine.gpus or machine.driver)


def is_of_gpu(symbol: str) -> bool:
    """Whether a symbol of torch is of its part for GPUs."""
    return _GPU_NAME.search(symbol) is not None


@dataclasses.dataclass(frozen=True)
class Bond:
    """The torch that the libraries of a package are built for, as far as they tell.

    Attributes:
        range: of the package's metadata.
        backend: whose GPUs it is for.
        major: the major release of the toolkit whose runtime they share with torch.
        old_strings: whether it has the strings of before GCC 5; None if they do not tell.
        complete: whether these facts suffice: each missing symbol has a known reason.
    """

    range: str
    backend: Backend | None
    major: str | None
    old_strings: bool | None
    complete: bool

    def fits(self, minor: str, facts: TorchFacts) -> bool:
        """Whether PyPI's build of a torch minor is such a torch."""
        if not self._takes(minor) or self.old_strings == (not facts.old_strings):
            return False
        if self.backend is None:
            return True
        if self.backend != "cuda" or facts.pypi is None:
            return False
        return self.major in (None, major_version(facts.pypi))

    def other_build(self, minor: str, facts: TorchFacts) -> str | None:
        """The newest CUDA release of the builds beside PyPI's that are such a torch."""
        if not self._takes(minor) or self.old_strings or facts.old_strings:
            return None
        fitting = [one for one in facts.toolkits["cuda"] if major_version(one) == self.major]
        return max(fitting, key=version_numbers) if self.backend == "cuda" and fitting else None

    def _takes(self, minor: str) -> bool:
        return self.complete and (not self.range or range_contains(self.range, f"{minor}.99"))

    def describe(self) -> str:
        """The facts in words, e.g. "CUDA 12, strings of before GCC 5"."""
        parts = [f"{BRANDS[self.backend]} {self.major}"] if self.backend and self.major else []
        if self.old_strings:
            parts.append("strings of before GCC 5")
        return f" ({', '.join(parts)})" if parts else ""


def bond_of(package: Package, natives: Sequence[NativeLibrary], torch: Torch) -> Bond:
    """What libraries tell of the torch that they are built for."""
    claims = package.claims
    names = {name for native in natives for name in native.torch_names}
    cxx = {name for name in names if is_cxx(name)}
    old = any(OLD_STRING.search(name) for name in cxx)
    new = any(_NEW_STRING in name for name in cxx)
    backends = [native.backend for native in natives if native.backend]
    backend = backends[0] if backends else None
    majors = [
        found[1]
        for native in natives
        if native.runtime and (found := _SO_MAJOR.search(native.runtime))
    ]
    if claims and claims.abi == "aten" and claims.toolkit_version:
        majors.append(runtime_major(backend or "cuda", claims.toolkit_version))
    lacks_gpu = backend is not None and torch.backend != backend
    missing = {name for native in natives if native.links for name in native.links.undefined}
    unexplained = {
        name
        for name in missing
        if is_of_torch(name)
        and not (old and not torch.old_abi and OLD_STRING.search(name))
        and not (lacks_gpu and is_of_gpu(name))
    }
    return Bond(
        range=package.torch_range,
        backend=backend,
        major=majors[0] if majors else None,
        old_strings=old if old != new else None,
        # Old strings are a reason for all: no torch since 2.7 has any of such a library's symbols.
        complete=not unexplained or (old and not torch.old_abi),
    )


def with_one_fix(
    findings: Sequence[Finding], case: Case, natives: Sequence[NativeLibrary]
) -> tuple[Finding, ...]:
    """Give the findings that come of the installed torch a fix that clears all of them.

    `natives` are the libraries that are explained.
    """
    torch = case.machine.torch
    own = [finding for finding in findings if _is_of_torch(finding)]
    alone = len(own) == 1 and own[0].rule not in ("backend", "library")
    if torch is None or not own or alone:
        return tuple(findings)
    fix = _fix(own[0], bond_of(case.package, natives, torch), case.machine, torch, case.package)
    return tuple(
        dataclasses.replace(one, fix=fix) if _is_of_torch(one) else one for one in findings
    )


def _is_of_torch(finding: Finding) -> bool:
    return finding.of_torch or finding.rule in ("torch", "backend", "toolkit-torch")


def _fix(first: Finding, bond: Bond, machine: Machine, torch: Torch, package: Package) -> str:
    known = dict(_fitting(bond, machine))
    # What `pip install` would bring, without more being said: the newest, or the same release.
    newest = next(iter(_in_range(bond, machine)), None)
    usual = {"torch": newest, "backend": torch.minor}.get(first.rule)
    other = first.rule == "backend" and bond.backend != "cuda"
    if usual in known or (usual and usual not in torch_releases()) or other:
        return first.fix
    keep = f"keep torch {torch.version} and install a wheel for it: {install_command(package.name)}"
    if known:
        command = f"`pip install 'torch=={next(iter(known))}.*'` brings PyPI's, which it fits"
        return f"{command}{bond.describe()}; or {keep}"
    for minor, facts in reversed(list(torch_releases().items())):
        if release := bond.other_build(minor, facts):
            address = f"{PYTORCH}/{ToolkitRelease('cuda', release).name}"
            command = f"`pip install --force-reinstall 'torch=={minor}.*' --index-url {address}`"
            return f"{command} brings one that it fits{bond.describe()}; or {keep}"
    return (
        f"install a wheel for torch {torch.version}: {install_command(package.name)}; no torch is "
        "known that this one fits"
    )


def _fitting(bond: Bond, machine: Machine) -> Iterator[tuple[str, TorchFacts]]:
    """The torch minors that fit as PyPI has them for this Python, the newest first."""
    python = minor_version(machine.python)
    for minor, facts in reversed(list(torch_releases().items())):
        if python in facts.pythons and bond.fits(minor, facts):
            yield minor, facts


def _in_range(bond: Bond, machine: Machine) -> Iterator[str]:
    """The torch minors of the package's range for this Python, the newest first."""
    anything = dataclasses.replace(bond, backend=None, major=None, old_strings=None, complete=True)
    return (minor for minor, _ in _fitting(anything, machine))
