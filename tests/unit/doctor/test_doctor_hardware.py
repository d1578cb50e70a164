"""GPUs on the PCI bus."""

import pytest

from torchwheel.doctor.examine import backends_on_pci_bus


@pytest.mark.parametrize(
    ("devices", "backends"),
    [
        ([("0x030200", "0x10de")], ("cuda",)),
        ([("0x030000", "0x1002"), ("0x030000", "0x1002")], ("rocm",)),
        ([("0x038000", "0x10de"), ("0x030000", "0x1002")], ("cuda", "rocm")),
        ([("0x040300", "0x10de")], ()),  # its sound
        ([("0x030000", "0x8086")], ()),
        ([], ()),
    ],
)
def test_display_controllers_of_known_makers_count(tmp_path, devices, backends):
    for number, (kind, vendor) in enumerate(devices):
        folder = tmp_path / f"sys/bus/pci/devices/0000:{number:02}:00.0"
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "vendor").write_text(f"{vendor}\n")
    assert backends_on_pci_bus(tmp_path) == backends


def test_a_device_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:00:00.0").mkdir(parents=True)
    assert backends_on_pci_bus(tmp_path) == ()
