"""Gate `archs`: the machine code in the wheel is what it claims, arch by arch, kernel by kernel."""

from collections.abc import Iterable, Mapping, Sequence, Set

from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel_runtime.arch.model import Arch, backend_of
from torchwheel_runtime.claims import Claims, LibraryNeeds
from torchwheel_runtime.inspect.elf import GpuCode


def archs(facts: WheelFacts, limits: Limits) -> str:
    """Found archs = claimed archs, PTX where +PTX, every kernel in each of them."""
    claims, libraries = facts.claims, facts.libraries.read()
    if claims.abi == "pure":
        if libraries:
            raise GateError(f"a pure wheel holds machine code: {libraries[0].name}")
        return "no machine code, none claimed"
    by_library = facts.gpu_code.read()
    if claims.abi == "universal":
        return _archs_of_parts(claims, by_library)
    code = [module for modules in by_library.values() for module in modules]
    if claims.backend is None:
        found = {module.arch.binary_name for module in code}
        if names := found | set(map(str, claims.archs)):
            raise GateError(f"no backend is claimed, but code for {', '.join(sorted(names))}")
        return "no code for a GPU, none claimed"
    reasons = [limits.reason("archs", library.name) for library in libraries]
    if not code and reasons and all(reasons):
        return f"no code for a GPU by declaration: {reasons[0]}"
    # Kernels that need not be there for every arch, as declared.
    partial = [
        kernel
        for library, modules in by_library.items()
        if limits.reason("archs", library)
        for module in modules
        for kernel in module.kernels
    ]
    return _judge(claims.needs, code, partial)


def _judge(needs: LibraryNeeds, code: Sequence[GpuCode], partial: Sequence[str] = ()) -> str:
    """Compare the claims about one library, or about all of a wheel, with the code."""
    if not needs.archs:
        raise GateError("a binary wheel must claim the archs it is built for; got none")
    others = [str(arch) for arch in needs.archs if backend_of(arch) != needs.backend]
    if others:
        raise GateError(f"archs of backend {needs.backend} expected, got {', '.join(others)}")
    return compare(needs.archs, code, partial)


def _archs_of_parts(claims: Claims, code: Mapping[str, tuple[GpuCode, ...]]) -> str:
    """Each kernel library holds what its part claims, and no other library holds GPU code."""
    lines = []
    for part in claims.parts:
        modules = code.get(part.file)
        if modules is None:
            raise GateError(f"{part.file}: is claimed, but no library of the wheel")
        if part.kind != "kernels":
            if modules:
                raise GateError(f"{part.file}: GPU code in a library that is not for kernels")
            continue
        try:
            lines.append(f"{part.name}: {_judge(part.needs, modules)}")
        except GateError as error:
            raise GateError(f"{part.file}: {error}") from error
    if not lines:
        raise GateError("a universal wheel must claim a kernel library; got none")
    return "; ".join(lines)


def compare(claimed: Sequence[Arch], code: Sequence[GpuCode], partial: Sequence[str]) -> str:
    """Compare the claimed archs with the modules of GPU code in the wheel's libraries.

    Args:
        claimed: the archs.
        code: the modules.
        partial: kernels that are declared to be for some of the archs.
    """
    kernels, ptx = _kernels_by_arch(code), {module.arch for module in code if module.kind == "ptx"}
    claimed_code = {arch.in_binary for arch in claimed}
    claimed_ptx = {arch.in_binary for arch in claimed if arch.ptx}
    # Link steps of nvcc add empty modules, so an extra arch counts even without a kernel.
    machine_code = {module.arch for module in code if module.kind != "ptx"}
    faults = [
        *_fault("claimed, but no machine code with a kernel for", claimed_code - kernels.keys()),
        *_fault("machine code not claimed:", machine_code - claimed_code),
        *_fault("claimed with +PTX, but no PTX for", claimed_ptx - ptx),
        *_fault("PTX not claimed:", ptx - claimed_ptx),
    ]
    if faults:
        raise GateError("; ".join(faults))
    everywhere = {arch: names.difference(partial) for arch, names in kernels.items()}
    _require_every_kernel(everywhere)
    if not partial:
        _require_all_ptx(code, claimed_ptx)
    count = len(next(iter(everywhere.values())))
    text = " ".join(_names(claimed_code)) + "".join(
        f" + PTX {name}" for name in _names(claimed_ptx)
    )
    some = len({*partial}.intersection(*[set[str]().union(*kernels.values())]))
    return f"{text}, {count} kernels in each" + (f", {some} in some by declaration" if some else "")


def _in_order(archs_: Iterable[Arch]) -> list[Arch]:
    """NVIDIA's before AMD's, sm_90a before sm_100, gfx942 before gfx1100."""
    return sorted(archs_, key=lambda arch: (backend_of(arch), arch))


def _names(archs_: Iterable[Arch]) -> list[str]:
    return [arch.binary_name for arch in _in_order(archs_)]


def _kernels_by_arch(code: Sequence[GpuCode]) -> dict[Arch, set[str]]:
    """The kernels that have machine code, by arch."""
    kernels: dict[Arch, set[str]] = {}
    for module in code:
        if module.kind != "ptx" and module.kernels:
            kernels.setdefault(module.arch, set()).update(module.kernels)
    return kernels


def _fault(text: str, archs_: Set[Arch]) -> list[str]:
    return [f"{text} {', '.join(_names(archs_))}"] if archs_ else []


def _require_every_kernel(kernels: Mapping[Arch, set[str]]) -> None:
    """A source file that is built without an arch would leave its kernels out for that arch."""
    all_kernels = set[str]().union(*kernels.values())
    for arch in _in_order(kernels):
        if missing := sorted(all_kernels - kernels[arch]):
            raise GateError(
                f"{arch.binary_name} lacks {len(missing)} kernels others have, e.g. {missing[0]}"
            )


def _require_all_ptx(code: Sequence[GpuCode], claimed_ptx: Set[Arch]) -> None:
    """PTX modules do not list their kernels, so their number is compared with machine code's."""
    for arch in _in_order(claimed_ptx):
        sass = sum(m.kind == "sass" and m.arch == arch and bool(m.kernels) for m in code)
        ptx = sum(m.kind == "ptx" and m.arch == arch for m in code)
        if ptx < sass:
            raise GateError(
                f"{arch.binary_name}: {sass} modules of machine code, but only {ptx} of PTX"
            )
