"""GPUs on the PCI bus, as the Linux kernel lists them: they are there with and without a driver."""

from pathlib import Path

from torchwheel.arch.backend import Backend

_VENDORS: dict[str, Backend] = {"0x10de": "cuda", "0x1002": "rocm"}
_DISPLAY = "0x03"
"""Display controllers, 3D accelerators among them."""


def on_the_bus(root: Path = Path("/")) -> tuple[Backend, ...]:
    """Whose GPUs there are; a virtual machine may show none, and an AMD one may be a screen's."""
    found: set[Backend] = set()
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            kind = (device / "class").read_text(encoding="ascii").strip()
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if kind.startswith(_DISPLAY) and vendor in _VENDORS:
            found.add(_VENDORS[vendor])
    return tuple(sorted(found))
