"""Pictures of the index's front page for docs/: `python tests/integration/front_pictures.py`.

The page is that of a release of this matrix. Its wheels are stubs; sizes and smoke tests are
those of the runs on GPUs in docs/records.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser import browser  # noqa: E402 - beside this file; wheelmaker is in tests
from installers import stub  # noqa: E402

from torchwheel.index.catalogue import (  # noqa: E402
    About,
    Catalogue,
    CatalogueWheel,
    SmokeRun,
    read_wheel_entry,
)
from torchwheel.index.listing import Store, index_of  # noqa: E402
from torchwheel.index.serve import serve_in_background  # noqa: E402
from torchwheel.index.withdrawals import Withdrawals  # noqa: E402
from torchwheel.index.writer import write_index  # noqa: E402
from torchwheel.inspect.wheel import read_wheel  # noqa: E402
from torchwheel.matrix.load import load  # noqa: E402
from torchwheel.matrix.variants import select  # noqa: E402
from torchwheel.smoke.smoke_record import SCHEMA, SmokeRecord  # noqa: E402
from torchwheel_runtime.json_files import read_json  # noqa: E402
from wheelmaker import make_wheel  # noqa: E402

DATE = "2026-11-26T12:00:00Z"
PICTURES = {
    "front-light": (1100, "light"),
    "front-dark": (1100, "dark"),
    "front-phone": (375, "light"),
}
"""The width and the colours."""
ABOUT = About(
    "Fused inference kernels for PyTorch on CUDA and HIP",
    *("Apache-2.0", "docs/", "https://example.org/", "fusedops"),
    doctor=True,
)


def entry(wheel: Path, records: dict[str, SmokeRecord]) -> CatalogueWheel:
    """A wheel of the catalogue, with its recorded run if there is one."""
    made = dataclasses.replace(read_wheel_entry(read_wheel(wheel), DATE), about=ABOUT)
    record = next((r for name, r in records.items() if _key(name) == _key(wheel.name)), None)
    if record is None or record.machine.gpu is None:
        return made
    machine, gpu, counts = record.machine, record.machine.gpu, record.tests.counts
    run = SmokeRun(
        f"{wheel.name}.smoke-1.json",
        *(record.date, record.verdict, True, machine.python, machine.platform, machine.torch),
        *(gpu.name, gpu.arch, gpu.driver, counts.passed, counts.skipped),
    )
    return dataclasses.replace(made, size=record.size, smoke=(run,))


def bundled(folder: Path, name: str, version: str) -> CatalogueWheel:
    """A package that all wheels need."""
    wheel = make_wheel(folder, name=name, version=version, claims=None, requires=())
    return read_wheel_entry(read_wheel(wheel), DATE)


def _key(file: str) -> tuple[str, ...]:
    """Version, Python and ABI of a wheel's name, and whether it is for one platform."""
    _, version, python, abi, platform = file.removesuffix(".whl").split("-")
    return version, python, abi, platform.rpartition("manylinux")[2][-6:]


def main() -> None:
    """Write the pictures."""
    files = sorted((ROOT / "docs" / "records").glob("smoke-h*.json"))
    read = [
        read_json(file, SmokeRecord, schema=SCHEMA)
        for file in files
        if f'"schema": {SCHEMA},' in file.read_text()
    ]
    records = {record.wheel: record for record in read}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        variants = select(load(ROOT / "matrix.yaml"), ["release"])
        wheels = tuple(entry(stub(folder, variant), records) for variant in variants)
        wheels += tuple(
            map(bundled, [folder] * 2, ("torchwheel_runtime==0.1.0", "packaging==26.0"))
        )
        store = Store("https://example.org/{tag}")
        index = index_of([Catalogue("fusedops", "v1.0.0", wheels)], store, Withdrawals())
        write_index(index, folder / "index")
        with serve_in_background(folder / "index") as address, browser(folder / "profile") as page:
            for name, (width, scheme) in PICTURES.items():
                page.open(f"{address}/", width=width, scheme=scheme)
                page.picture(ROOT / "docs" / f"{name}.png", whole=False)


if __name__ == "__main__":
    main()
