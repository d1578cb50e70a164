"""The run-time half can be installed wherever torch can, from PyPI's wheels alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

NIGHTLY = ("musllinux_1_2_x86_64", "musllinux_1_2_aarch64", "manylinux2014_aarch64")
PLATFORMS = (
    *("macosx_11_0_arm64", "win_amd64", "manylinux2014_x86_64"),
    *(pytest.param(platform, marks=pytest.mark.nightly) for platform in NIGHTLY),
)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_pip_resolves_the_base(own_wheel: Path, platform: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
        + ["--target", str(tmp_path), "--only-binary=:all:", "--platform", platform]
        + ["--python-version", "3.10", str(own_wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {item["metadata"]["name"] for item in json.loads(done.stdout)["install"]}
    # What builds wheels comes with the extra. Where it is needed, a line says so.
    assert names == {"torchwheel-runtime", "packaging"}
