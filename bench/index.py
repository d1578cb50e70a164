"""How long an index of many wheels takes to build, and to build again with one more wheel.

    nox -s bench -- index [--wheels 10000] [--record docs/records/index.json]

The wheels are those of the matrix's selection `release`, as catalogues of as many releases as it
takes; each claims what its variant claims. Each release is signed as `release.yml` signs it, by a
root of trust of the tests. `torchwheel index build` runs as a process of its own, as it is and with
`--repository`, which verifies the signatures: of the whole all, of one wheel more the new one, as
the others were verified before.
"""

import argparse
import dataclasses
import datetime
import hashlib
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torchwheel.evidence.files import ATTESTATION
from torchwheel.index.catalogue import (
    FILE,
    Catalogue,
    CatalogueWheel,
    SmokeRun,
    catalogue_text,
)
from torchwheel.index.listing import utc_time
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline.inputs import claims_of
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.text import table_rows

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))
import signing  # noqa: E402 - of the tests

REPOSITORY = "https://github.com/OWNER/fusedops"
ADDRESS = f"{REPOSITORY}/releases/download/{{tag}}"
CACHE = "cache"
DAY = 86400
RUNS = 5
"""Of one wheel more: the one with the least CPU seconds counts."""


def release(number: int, variants: Sequence[Variant]) -> Catalogue:
    """The catalogue of a release: a wheel for each variant, and a bundled package."""
    version = f"1.{number}.0"
    uploaded = utc_time(1767225600 + number * DAY)
    wheels = [wheel(variant, version, uploaded) for variant in variants]
    helper = entry("torchwheel", f"0.{number}.0", "py3-none-any", uploaded, None)
    return Catalogue("fusedops", f"v{version}", (*wheels, helper))


def wheel(variant: Variant, version: str, uploaded: str) -> CatalogueWheel:
    """The wheel of a variant, with the records that a release has of it."""
    local = f"{version}+{variant.local}" if variant.local else version
    abi = "none" if variant.python is None else variant.python_tag
    tag = f"{variant.python_tag}-{abi}-{variant.platform.replace('linux_', 'manylinux_2_17_')}"
    run = SmokeRun(
        *(f"{variant.id}.smoke-1.json", uploaded, "passed", True, "3.12.1", "linux_x86_64"),
        *("2.13.0+cu130", "NVIDIA H200", "9.0", "580.1", 3018, 104),
    )
    return dataclasses.replace(
        entry("fusedops", local, tag, uploaded, claims_of(variant)),
        gates=dict.fromkeys(("archs", "size", "symbols", "claims", "tag"), "holds"),
        smoke=(run, dataclasses.replace(run, on_gpu=False)),
        record=f"{variant.id}.build.json",
    )


def entry(
    project: str, version: str, tag: str, uploaded: str, claims: Claims | None
) -> CatalogueWheel:
    """The entry of a wheel; its hashes are those of its name."""
    file = f"{project}-{version}-{tag}.whl"
    digest = hashlib.sha256(file.encode()).hexdigest()
    return CatalogueWheel(
        *(file, project, version, (tag,), digest, 13 << 20, digest, ">=3.10", uploaded, claims),
        provenance=f"{file}.provenance",
    )


def releases(wheels: int) -> Iterator[Catalogue]:
    """Releases with so many wheels."""
    variants = select(load(ROOT / "matrix.yaml"), ["release"])
    for number in range(-(-wheels // (len(variants) + 1))):
        yield release(number, variants)


def write(folder: Path, catalogue: Catalogue, root: signing.Root) -> None:
    """Write a catalogue and its attestation, which is of all assets, as `nox -s earlier` does."""
    own = folder / catalogue.tag
    own.mkdir()
    (own / FILE).write_text(catalogue_text(catalogue))
    ref = f"refs/tags/{catalogue.tag}"
    job = signing.Job(REPOSITORY, ".github/workflows/release.yml", "5" * 40, ref)
    subjects = [*signing.subjects_of([own / FILE]), *assets(catalogue)]
    bundle = signing.bundle(root, job, signing.statement(subjects, job))
    (own / ATTESTATION).write_text(json.dumps(bundle))


def assets(catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Names and hashes of the assets that a release has beside its catalogue."""
    for of in catalogue.wheels:
        records = [of.record, *(run.record for run in of.smoke[:1])]
        for name in (of.file, f"{of.file}.metadata", of.provenance, *records):
            if name:
                yield name, of.sha256


def build(folder: Path, trust: Path | None = None) -> dict[str, float]:
    """Build the index in a process of its own; its seconds, CPU seconds, peak memory and size.

    With a root of trust, every catalogue must be signed.
    """
    command = [sys.executable, "-m", "torchwheel", "index", "build", str(folder / "catalogues")]
    options = ["--address", ADDRESS, "--yanked", str(folder / "yanked.yaml")]
    out = folder / ("signed" if trust else "index")
    if trust:
        options += ["--repository", REPOSITORY, "--matrix", str(ROOT / "matrix.yaml")]
        options += ["--trusted-root", str(trust)]
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    environment["TORCHWHEEL_CACHE"] = str(folder / CACHE)
    command += [*options, "--out", str(out)]
    start = time.perf_counter()
    child = os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    if status:
        raise RuntimeError(f"{command}: exit status {os.waitstatus_to_exitcode(status)}")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return {
        "seconds": round(seconds, 2),
        # A busy machine changes them less than the time on the clock.
        "CPU seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak MiB": round(used.ru_maxrss / 1024),
        "index MB": round(size / 1e6, 1),
    }


def additions() -> float:
    """CPU seconds of ten million additions: a measure of how busy the machine is."""
    start, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return round(time.process_time() - start, 2)


def measure(wheels: int, folder: Path) -> dict[str, dict[str, float]]:
    """Build an index of so many wheels, then with one more: a small one, and a universal one."""
    catalogues = folder / "catalogues"
    catalogues.mkdir()
    (folder / "yanked.yaml").write_text("schema: 1\n")
    root = signing.open_root(folder / "root")
    found = {}

    def note(name: str, runs: Iterable[tuple[dict[str, float], dict[str, float]]]) -> None:
        for kind, of in zip((name, f"{name}, signed"), zip(*runs, strict=True), strict=True):
            found[kind] = min(of, key=lambda run: run["CPU seconds"])

    def both() -> tuple[dict[str, float], dict[str, float]]:
        return build(folder), build(folder, root.trusted_root)

    def whole() -> tuple[dict[str, float], dict[str, float]]:
        shutil.rmtree(folder / CACHE, ignore_errors=True)  # every signature is verified
        return both()

    for number, catalogue in enumerate(releases(wheels), start=1):
        write(catalogues, catalogue, root)
        if number == 20:
            both()  # it compiles torchwheel's bytecode, which an installed wheel has
            note("20 releases", [whole()])
    note(f"{wheels} wheels", [whole()])
    numbers = itertools.count()
    for variant in ("cu130-stable", "universal"):
        (added,) = select(load(ROOT / "matrix.yaml"), [variant])
        runs = []
        for version in (f"2.{next(numbers)}.0" for _ in range(RUNS)):
            one = wheel(added, version, "2028-01-01T00:00:00Z")
            write(catalogues, Catalogue("fusedops", f"v{version}", (one,)), root)
            runs.append(both())
        note(f"one more: {variant}", runs)
    return found


def main() -> None:
    """Measure, print the table and write the record."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--wheels", type=int, default=10_000)
    options.add_argument("--record", type=Path)
    call = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(call.wheels, Path(folder))
    rows = [(name, *(f"{value:g}" for value in row.values())) for name, row in found.items()]
    head = ("index", *next(iter(found.values())))
    print("\n".join(table_rows("<32 >8 >11 >8 >8", [head, *rows])))
    if call.record:
        document = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "CPU seconds of 10 million additions": additions(),
            "load": round(os.getloadavg()[0], 1),
            "wheels": call.wheels,
            "builds": found,
        }
        call.record.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
