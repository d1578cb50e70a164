"""The clean environments of smoke tests, by real pip."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from torchwheel.smoke.trial_environment import base_environment, site_of
from torchwheel.toolkit.toolkit_home import HEADER_TIME
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel, requirement_of

pytestmark = pytest.mark.integration


def test_a_package_of_the_callers_path_is_installed_too(tmp_path, monkeypatch):
    """Who uses the environment later has another PYTHONPATH, or none."""
    wheels = [
        make_wheel(tmp_path, name="demo", requires=("needed",)),
        make_wheel(tmp_path, name="needed", requires=()),
    ]
    path = tmp_path / "path"
    with zipfile.ZipFile(wheels[1]) as archive:
        archive.extractall(path)
    monkeypatch.setenv("PYTHONPATH", str(path))
    base = base_environment(tmp_path / "cache", list(map(requirement_of, wheels)), Quiet())
    assert {"demo", "needed"} <= {found.name for found in site_of(base).iterdir()}


def test_torchs_headers_have_one_time(tmp_path):
    """gcc takes equal files of one second for one file: what it reads depends on their times."""
    files = {f"torch/include/{name}.h": b"#pragma once\n" for name in ("a", "c10/b")}
    wheel = make_wheel(tmp_path, name="torch", requires=(), files=files)
    base = base_environment(tmp_path / "cache", [requirement_of(wheel)], Quiet())
    headers = [site_of(base) / name for name in files]
    assert [header.stat().st_mtime for header in headers] == [HEADER_TIME] * 2


def test_only_the_file_of_the_lock_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "wheels", name="demo", requires=())
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    locks = tmp_path / "locks"
    locks.mkdir()
    path = locks / "demo.txt"
    path.write_text(f"demo==1.0.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(TorchwheelError, match="hash mismatch: "):
        base_environment(tmp_path / "cache", ["demo"], Quiet(), locks=locks)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(path.read_text().replace("0" * 64, digest))
    base = base_environment(tmp_path / "cache", ["demo"], Quiet(), locks=locks)
    assert "demo" in {found.name for found in site_of(base).iterdir()}
