"""Artifacts of a small release, as they are downloaded: a folder for each."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from torchwheel.check.gates import OF_CLAIMS
from torchwheel.pipeline import build_records as build_record
from torchwheel.pipeline.sources import source_digest
from torchwheel.release.assemble import assemble
from torchwheel.smoke import smoke_record
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel.smoke.smoke_record import (
    GpuRecord,
    ImportRecord,
    MachineRecord,
    TestResult,
    summarize,
)
from torchwheel.smoke.testing import digest_of_tests
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256, sha256_by_name
from wheelmaker import make_wheel, stable

TAG = "py3-none-manylinux_2_28_x86_64"
CPU = MachineRecord("3.12.1", "linux_x86_64", "2.39", "2.13.0+cpu", None, None, None)
H200 = dataclasses.replace(
    CPU, torch="2.13.0+cu130", cuda="13.0", gpu=GpuRecord("NVIDIA H200", "9.0", "580.1")
)
NATIVE = {
    "version": "1.0.0+cu130",
    "tag": TAG,
    "claims": stable(),
    "requires": ("torch>=2.11",),
}
"""The wheel of cu130-stable."""

MATRIX = """\
schema: 1
project: {name: demo, source: project}
abis: {stable: {torch: "2.11"}, pure: {torch: "2.6"}}
toolkits:
  cu130: {backend: cuda, version: "13.0", abis: [stable], archs: ["8.0", "9.0"], source: pypi}
  rocm6.4: {backend: rocm, version: "6.4", abis: [stable], archs: [gfx942], source: system}
torch:
  "2.11": {toolkits: [cu130], pythons: ["3.12"]}
platforms: [linux_x86_64]
selections: {release: [cu130-stable, pure], amd: [rocm6.4-stable]}
runners:
  linux_x86_64: {build: [ubuntu-24.04], cuda: [self-hosted, cuda]}
  any: {build: [ubuntu-24.04]}
smoke: {tests: tests/smoke, torch: "2.13.0", skips: [slow]}
gates: {max_size_mib: 8, reproducible: true}
"""

ORDINARY = """\
schema: 1
project: {name: demo, source: project}
abis: {ordinary: {}}
toolkits:
  cu130: {backend: cuda, version: "13.0", abis: [ordinary], archs: ["8.0", "9.0"], source: pypi}
torch:
  "2.11": {toolkits: [cu130], pythons: ["3.12", "3.13"]}
  "2.13": {toolkits: [cu130], pythons: ["3.12"]}
platforms: [linux_x86_64]
runners:
  linux_x86_64: {build: [ubuntu-24.04], cuda: [self-hosted, cuda]}
build: {tests: tests}
smoke: {skips: [slow]}
"""
"""Of a project with a setup.py of its own: a wheel for each torch and Python."""

SUITE = """\
def test_a(): pass
class TestB:
    def test_b(self): pass
"""


def write_project(root: Path, matrix: str = MATRIX) -> None:
    """The sources of the release: the project, its smoke tests and the matrix."""
    (root / "project").mkdir()
    (root / "project" / "pyproject.toml").write_text('[project]\nname = "demo"\n')
    (root / "tests" / "smoke").mkdir(parents=True)
    (root / "tests" / "smoke" / "test_demo.py").write_text(SUITE)
    (root / "matrix.yaml").write_text(matrix)


def root_of(wheel: Path) -> Path:
    """The folder of the matrix, above an artifact."""
    return next(folder for folder in wheel.parents if (folder / "matrix.yaml").is_file())


def bundled(wheel: Path) -> dict[str, str]:
    """Those that lie in a wheel's artifact."""
    return sha256_by_name((wheel.parent / BUNDLED_FOLDER).glob("*.whl"))


def smoke_of(
    wheel: Path, machine: MachineRecord = CPU, **changes: object
) -> smoke_record.SmokeRecord:
    """A green smoke record of a wheel and its bundled packages."""
    imported = (ImportRecord("demo", "demo/__init__.py"),)
    tests = summarize(
        (
            TestResult("test_demo.py::test_a[1]", "passed", 0.5),
            TestResult("test_demo.py::TestB::test_b", "skipped", 0.0, "slow"),
        )
    )
    verdict, why = smoke_record.judge_smoke(machine, imported, tests, 0)
    size, date = wheel.stat().st_size, "2026-11-20T00:00:00+00:00"
    record = smoke_record.SmokeRecord(
        wheel=wheel.name,
        sha256=sha256(wheel),
        size=size,
        date=date,
        machine=machine,
        imported=imported,
        tests=tests,
        sources=digest_of_tests(root_of(wheel) / "tests" / "smoke"),
        operators={},
        verdict=verdict,
        why=why,
        bundled=bundled(wheel),
    )
    return dataclasses.replace(record, **changes)  # type: ignore[arg-type]


@dataclasses.dataclass
class Artifacts:
    """The folders of one release; its methods damage them."""

    root: Path
    matrix: Path
    wheels: dict[str, Path] = dataclasses.field(default_factory=dict)

    def add(self, variant: str, wheel: Path) -> None:
        self.wheels[variant] = wheel
        record = build_record.BuildRecord(
            variant=variant,
            key="key",
            file=wheel.name,
            sha256=sha256(wheel),
            size=wheel.stat().st_size,
            archs=(),
            tag_reason="",
            gates=len(OF_CLAIMS),
            smoke="passed, not run on a GPU",
            seconds=1.0,
            steps={},
            built_twice=variant != "pure",
            bundled=bundled(wheel),
            sources=source_digest(root_of(wheel) / "project"),
        )
        build_record.save_record(wheel.parent, record)
        self.write_smoke(variant, smoke_of(wheel), f"wheel-{variant}")

    def build_file(self, variant: str) -> Path:
        return self.root / f"wheel-{variant}" / build_record.FOLDER / f"{variant}.json"

    def smoke_file(self, variant: str, artifact: str = "") -> Path:
        return self.root / (artifact or f"smoke-{variant}") / "smoke" / f"{variant}.json"

    def write_smoke(
        self, variant: str, record: smoke_record.SmokeRecord, artifact: str = ""
    ) -> None:
        path = self.smoke_file(variant, artifact)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(smoke_record.dump_smoke(record))

    def smoke(
        self,
        variant: str,
        machine: MachineRecord | None = None,
        artifact: str = "",
        **changes: object,
    ) -> None:
        """A green smoke record of a variant's wheel, with changes; the native one ran on a GPU."""
        machine = machine or (H200 if variant.startswith("cu") else CPU)
        self.write_smoke(variant, smoke_of(self.wheels[variant], machine, **changes), artifact)

    def drop(self, variant: str) -> None:
        """Remove the folders of a variant."""
        for kind in ("wheel", "smoke"):
            shutil.rmtree(self.root / f"{kind}-{variant}")

    def again(self, variant: str, machine: MachineRecord | None = None, **wheel: object) -> None:
        """Another wheel of a variant, with every record that it needs."""
        self.drop(variant)
        self.add(variant, make_wheel(self.root / f"wheel-{variant}", **wheel))  # type: ignore[arg-type]
        self.smoke(variant, machine)

    def replace(self, old: str, new: str) -> None:
        """Change the matrix."""
        text = self.matrix.read_text()
        assert old in text
        self.matrix.write_text(text.replace(old, new))

    def edit(self, path: Path, **changes: object) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def run(a: Artifacts, out: Path | None = None, *, selection: str = "release", **options) -> str:
    """Assemble a release beside the matrix, or in `out`; returns what is printed."""
    out = out or a.matrix.parent / "release"
    return assemble(a.matrix, [selection], [a.root], out, Quiet(), **options)


def refused(a: Artifacts, out: Path | None = None, **options) -> list[str]:
    """The lines of a refusal; nothing was written."""
    out = out or a.matrix.parent / "release"
    before = sorted(out.parent.iterdir())
    with pytest.raises(TorchwheelError) as caught:
        run(a, out, **options)
    assert caught.value.status == 1
    assert sorted(out.parent.iterdir()) == before
    head, *lines = str(caught.value).splitlines()
    assert head == f"nothing is written to {out}; faults: {len(lines)}"
    return [line.replace(f"{a.root}/", "") for line in lines]


def require_refused(a: Artifacts, *says: str, **options) -> None:
    """Exactly these lines refuse a release; one that ends with "…" is a beginning."""
    lines = refused(a, **options)
    assert len(lines) == len(says), lines
    for line, said in zip(lines, says, strict=True):
        assert line == said or (said.endswith("…") and line.startswith(said[:-1]))


def commit(a: Artifacts, date: str) -> None:
    """Commit the folder of the matrix at a time."""
    root = a.matrix.parent
    (root / ".gitignore").write_text("artifacts\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "x"]):
        env = {"GIT_COMMITTER_DATE": date, "PATH": "/usr/bin:/bin"}
        subprocess.run(["git", "-C", str(root), *command], check=True, env=env)
