"""Gate `archs`: the machine code in the wheel is what it claims, arch by arch, kernel by kernel."""

import re
from collections.abc import Iterable

from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.inspect.gpu import GpuCode

PTX = "+PTX"
# Its length says more than its text: sm_100 is newer than sm_90.
_PROCESSOR = re.compile(r"sm_\d*|gfx[0-9a-f]*|^")


def archs(facts: WheelFacts, _: Limits) -> str:
    """Found archs = claimed archs, PTX where +PTX, every kernel in each of them."""
    claims, libraries = facts.claims, facts.libraries.read()
    if claims.abi == "pure":
        if libraries:
            raise GateError(f"a pure wheel holds machine code: {libraries[0].name}")
        return "no machine code, none claimed"
    if claims.backend is None:
        if code := {module.arch for module in facts.gpu_code.read()} | set(claims.archs):
            raise GateError(f"no backend is claimed, but code for {', '.join(sorted(code))}")
        return "no code for a GPU, none claimed"
    if not claims.archs:
        raise GateError("a binary wheel must claim the archs it is built for; got none")
    others = [arch for arch in claims.archs if arch.startswith("gfx") != (claims.backend == "rocm")]
    if others:
        raise GateError(f"archs of backend {claims.backend} expected, got {', '.join(others)}")
    return compare(claims.archs, facts.gpu_code.read())


def compare(claimed: tuple[str, ...], code: tuple[GpuCode, ...]) -> str:
    """Compare archs as the matrix writes them, e.g. "9.0+PTX", with the modules found."""
    machine, ptx = _kernels(code), {module.arch for module in code if module.kind == "ptx"}
    want = [_as_found(arch) for arch in claimed]
    want_ptx = {_as_found(arch) for arch in claimed if arch.endswith(PTX)}
    # Link steps of nvcc add empty modules, so an extra arch counts even without a kernel.
    anywhere = {module.arch for module in code if module.kind != "ptx"}
    faults = [
        *_fault("claimed, but no machine code with a kernel for", set(want) - machine.keys()),
        *_fault("machine code not claimed:", anywhere - set(want)),
        *_fault("claimed with +PTX, but no PTX for", want_ptx - ptx),
        *_fault("PTX not claimed:", ptx - want_ptx),
    ]
    if faults:
        raise GateError("; ".join(faults))
    _whole(machine)
    _ptx_whole(code, want_ptx)
    count = len(next(iter(machine.values())))
    text = " ".join(_sorted(want)) + "".join(f" + PTX {arch}" for arch in _sorted(want_ptx))
    return f"{text}, {count} kernels in each"


def _as_found(arch: str) -> str:
    """What the binary calls an arch: sm_90a for 9.0a; a gfx target's features in order."""
    name, *features = arch.removesuffix(PTX).split(":")
    if name.startswith("gfx"):
        return ":".join((name, *sorted(features)))
    return "sm_" + name.replace(".", "")


def _sorted(archs_: Iterable[str]) -> list[str]:
    """sm_90a before sm_100, gfx942 before gfx1100."""
    return sorted(archs_, key=lambda arch: (len(_PROCESSOR.findall(arch)[0]), arch))


def _kernels(code: tuple[GpuCode, ...]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for module in code:
        if module.kind != "ptx" and module.kernels:
            found.setdefault(module.arch, set()).update(module.kernels)
    return found


def _fault(text: str, archs_: set[str]) -> list[str]:
    return [f"{text} {', '.join(_sorted(archs_))}"] if archs_ else []


def _whole(machine: dict[str, set[str]]) -> None:
    """One source file built without an arch would leave its kernels out for that arch."""
    every = set[str]().union(*machine.values())
    for arch in _sorted(machine):
        if missing := sorted(every - machine[arch]):
            raise GateError(f"{arch} lacks {len(missing)} kernels others have, e.g. {missing[0]}")


def _ptx_whole(code: tuple[GpuCode, ...], want_ptx: set[str]) -> None:
    """PTX modules do not list their kernels, so they are counted against the machine code's."""
    for arch in _sorted(want_ptx):
        sass = sum(m.kind == "sass" and m.arch == arch and bool(m.kernels) for m in code)
        ptx = sum(m.kind == "ptx" and m.arch == arch for m in code)
        if ptx < sass:
            raise GateError(f"{arch}: {sass} modules of machine code, but only {ptx} of PTX")
