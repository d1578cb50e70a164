"""Gate `archs`: the machine code in the wheel is what it claims, arch by arch, kernel by kernel."""

from torchwheel.check.facts import Facts, GateError
from torchwheel.check.limits import Limits
from torchwheel.inspect.gpu import GpuCode

PTX = "+PTX"


def archs(facts: Facts, _: Limits) -> str:
    """Found archs = claimed archs, PTX where +PTX, every kernel in each of them."""
    claims, libraries = facts.claims, facts.libraries.read()
    if claims.abi == "pure":
        if libraries:
            raise GateError(f"a pure wheel holds machine code: {libraries[0].name}")
        return "no machine code, none claimed"
    if claims.backend != "cuda":
        raise GateError(f"cannot read the GPU code of backend {claims.backend}; expected cuda")
    if not claims.archs:
        raise GateError("a binary wheel must claim the archs it is built for; got none")
    return compare(claims.archs, facts.gpu_code.read())


def compare(claimed: tuple[str, ...], code: tuple[GpuCode, ...]) -> str:
    """Compare archs as the matrix writes them, e.g. "9.0+PTX", with the modules found."""
    sass, ptx = _kernels(code), {module.arch for module in code if module.kind == "ptx"}
    want_sass = [_sm(arch) for arch in claimed]
    want_ptx = {_sm(arch) for arch in claimed if arch.endswith(PTX)}
    # Link steps of nvcc add empty modules, so an extra arch counts even without a kernel.
    anywhere = {module.arch for module in code if module.kind == "sass"}
    faults = [
        *_fault("claimed, but no machine code with a kernel for", set(want_sass) - sass.keys()),
        *_fault("machine code not claimed:", anywhere - set(want_sass)),
        *_fault("claimed with +PTX, but no PTX for", want_ptx - ptx),
        *_fault("PTX not claimed:", ptx - want_ptx),
    ]
    if faults:
        raise GateError("; ".join(faults))
    _whole(sass)
    _ptx_whole(code, want_ptx)
    count = len(next(iter(sass.values())))
    text = " ".join(sorted(want_sass, key=_number)) + "".join(
        f" + PTX {arch}" for arch in sorted(want_ptx, key=_number)
    )
    return f"{text}, {count} kernels in each"


def _sm(arch: str) -> str:
    return "sm_" + arch.removesuffix(PTX).replace(".", "")


def _number(arch: str) -> tuple[int, str]:
    digits = arch.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits), arch


def _kernels(code: tuple[GpuCode, ...]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for module in code:
        if module.kind == "sass" and module.kernels:
            found.setdefault(module.arch, set()).update(module.kernels)
    return found


def _fault(text: str, archs_: set[str]) -> list[str]:
    return [f"{text} {', '.join(sorted(archs_, key=_number))}"] if archs_ else []


def _whole(sass: dict[str, set[str]]) -> None:
    """One source file built without an arch would leave its kernels out for that arch."""
    every = set[str]().union(*sass.values())
    for arch in sorted(sass, key=_number):
        if missing := sorted(every - sass[arch]):
            raise GateError(f"{arch} lacks {len(missing)} kernels others have, e.g. {missing[0]}")


def _ptx_whole(code: tuple[GpuCode, ...], want_ptx: set[str]) -> None:
    """PTX modules do not list their kernels, so they are counted against the machine code's."""
    for arch in sorted(want_ptx, key=_number):
        sass = sum(m.kind == "sass" and m.arch == arch and bool(m.kernels) for m in code)
        ptx = sum(m.kind == "ptx" and m.arch == arch for m in code)
        if ptx < sass:
            raise GateError(f"{arch}: {sass} modules of machine code, but only {ptx} of PTX")
