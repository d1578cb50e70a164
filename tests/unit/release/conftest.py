"""Fixtures of the tests of `assemble`."""

from pathlib import Path

import pytest
from release_artifacts import NATIVE, Artifacts, write_project

from torchwheel.check.gates import OF_CLAIMS
from torchwheel.findings import CheckResult
from torchwheel.release import artifacts as artifacts_
from torchwheel.release import assemble
from torchwheel.release.sdists import Sdist
from wheelmaker import make_wheel


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifacts:
    """A release without a fault: a native wheel that ran on a GPU, and a pure one.

    Its sdist is a stand-in: test_release_sdists.py builds a real one.
    """
    sdist = Sdist(tmp_path / "demo-1.0.0.tar.gz", tmp_path / "demo-1.0.0")
    sdist.path.write_bytes(b"sources")
    helper = Sdist(tmp_path / "helper-0.1.tar.gz", tmp_path / "helper-0.1")
    helper.path.write_bytes(b"sources of it")
    monkeypatch.setattr(
        assemble,
        "make_sdists",
        lambda matrix, *_: [sdist, *[helper] * ("helper" in matrix.project.bundled)],
    )
    monkeypatch.setattr(assemble, "sdist_faults", lambda *_, **__: [])
    write_project(tmp_path)
    made = Artifacts(tmp_path / "artifacts", tmp_path / "matrix.yaml")
    made.add("cu130-stable", make_wheel(made.root / "wheel-cu130-stable", **NATIVE))
    made.smoke("cu130-stable")
    made.add("pure", make_wheel(made.root / "wheel-pure"))
    made.smoke("pure")
    return made


@pytest.fixture
def green_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every gate holds: no compiler makes machine code here."""
    green = tuple(CheckResult(name, True, "fine") for name in OF_CLAIMS)
    monkeypatch.setattr(artifacts_, "run_gates", lambda *_: green)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "release"
