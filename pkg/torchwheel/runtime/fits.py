"""Does the installed wheel fit this machine, by what the wheel claims of itself."""

from importlib import metadata

from torchwheel import claims
from torchwheel.builder.extension import Extension


def claims_of(distribution: str) -> claims.Claims | None:
    """The claims of an installed wheel; None where it has none, as a source tree has not."""
    try:
        text = metadata.distribution(distribution).read_text(claims.FILE)
    except metadata.PackageNotFoundError:
        return None
    return claims.loads(text, f"{distribution}: {claims.FILE}") if text else None


def fault_of(extension: Extension) -> str | None:
    """Why its prebuilt library must not be loaded here, and what to do; None if it may be.

    It asks for what costs nothing: torch and the C library. Kernels for another GPU are the
    driver's to refuse: to ask for the GPUs takes longer than the import.
    """
    claimed = claims_of(extension.package)
    if claimed is None:
        return None
    from torchwheel.machine import system  # noqa: PLC0415 - for installed wheels alone
    from torchwheel.machine.torch_facts import find_torch  # noqa: PLC0415
    from torchwheel.machine.torch_model import told  # noqa: PLC0415
    from torchwheel.validate.at_load import load_findings  # noqa: PLC0415
    from torchwheel.validate.override import let_pass  # noqa: PLC0415

    torch, glibc = told(find_torch())[0], told(system.glibc())[0]
    findings = load_findings(claimed, torch, glibc, package=extension.package)
    blocking = [finding for finding in let_pass(findings) if finding.blocks]
    return "; ".join(map(str, blocking)) or None
