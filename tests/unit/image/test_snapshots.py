"""Packages of a fixed day, and the versions that are expected of them."""

import http.server
import subprocess
from pathlib import Path

import pytest

from loopback import serving
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.image.recipes import BaseImage, debian, image_of
from torchwheel.image.snapshots import require_snapshot, service_of
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import resolve

ROOT = Path(__file__).parents[3]
DAY = "20261030T120000Z"


@pytest.fixture(scope="module")
def matrix():
    return load(ROOT / "matrix.yaml")


@pytest.fixture
def service():
    """Has Debian's bullseye of one day."""

    class Snapshots(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(
                200 if self.path == f"/debian/{DAY}/dists/bullseye/InRelease" else 404
            )
            self.end_headers()

        def log_message(self, *_):
            pass

    with serving(Snapshots) as address:
        yield address


def test_a_service_without_the_day_is_one_line_with_the_ways_out(service):
    require_snapshot(service, DAY, "bullseye")
    with pytest.raises(TorchwheelError) as raised:
        require_snapshot(service, "20200101T000000Z", "bullseye")
    for part in ("/dists/bullseye/InRelease: expected", "404", "TORCHWHEEL_SNAPSHOTS=none"):
        assert part in str(raised.value)
    with pytest.raises(TorchwheelError, match=r"found: .*refused; pull the image by its digest"):
        require_snapshot("http://127.0.0.1:9", DAY, "bullseye")


def test_todays_packages_are_taken_only_if_they_are_asked_for(matrix, monkeypatch):
    containers = matrix.containers
    assert service_of(containers, {}) == containers.snapshot_service
    assert service_of(containers, {"TORCHWHEEL_SNAPSHOTS": "http://m.test/a"}) == "http://m.test/a"
    assert service_of(containers, {"TORCHWHEEL_SNAPSHOTS": "none"}) is None
    with pytest.raises(UsageError, match=r"TORCHWHEEL_SNAPSHOTS: .* is not an address"):
        service_of(containers, {"TORCHWHEEL_SNAPSHOTS": "ftp://m.test"})
    without = containers.model_copy(update={"snapshot_service": None})
    with pytest.raises(UsageError, match=r"expected containers.snapshot_service beside it"):
        service_of(without, {})
    undated = containers.model_copy(update={"snapshot": None})
    assert service_of(undated, {}) is None
    monkeypatch.setenv("TORCHWHEEL_SNAPSHOTS", "http://m.test/a")
    mirrored = debian(containers, ROOT / "pkg" / "torchwheel" / "data" / "docker", "sid")
    assert (mirrored.args, mirrored.mirrors) == (
        {"SNAPSHOT": containers.snapshot},
        {"SNAPSHOTS": "http://m.test/a"},
    )
    monkeypatch.setenv("TORCHWHEEL_SNAPSHOTS", "none")
    assert debian(containers, ROOT / "pkg" / "torchwheel" / "data" / "docker", "sid") == BaseImage(
        "sid"
    )


def test_every_stage_of_an_image_is_of_its_day(matrix, monkeypatch):
    monkeypatch.delenv("TORCHWHEEL_SNAPSHOTS", raising=False)
    older = "20250101T000000Z"
    rocm = matrix.toolkits["rocm7.2"]
    packages = rocm.packages.model_copy(update={"snapshot": older})
    toolkits = {**matrix.toolkits, "rocm7.2": rocm.model_copy(update={"packages": packages})}
    moved = matrix.model_copy(update={"toolkits": toolkits})
    variant = next(one for one in resolve(moved) if one.id == "rocm7.2-stable")
    needs = image_of(moved, variant, ROOT, "x86_64").needs
    assert needs["BASE_IMAGE"].args == {"SNAPSHOT": older}
    assert needs["BUILD_BASE"].args == {"SNAPSHOT": matrix.containers.snapshot}
    assert needs["BASE_IMAGE"].needs["BASE_IMAGE"] == BaseImage("sid", None, older)
    assert needs["BASE_IMAGE"].needs["BASE_IMAGE"].local.endswith(f"/base:sid-{older}")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("'' hipcc=7.2.* libcub-dev", None),
        ("'' hipcc=7.2.4+dfsg-1", None),
        ("experimental hipcc=7.2.*", None),
        (
            "'' hipcc=6.4.*",
            "packages: expected hipcc 6.4.*, found 7.2.4+dfsg-1 in this Debian; pull the image by "
            "its digest, or move its snapshot or version in matrix.yaml",
        ),
        ("'' gone", "packages: expected gone , found none in this Debian; pull"),
        ("'' libcub-dev gone=1.*", "packages: expected gone 1.*, found none in this Debian; pull"),
        ("'' virtual", "packages: expected virtual , found none in this Debian; pull"),
    ],
)
def test_a_package_of_another_version_is_one_line(tmp_path, call, says):
    apt = tmp_path / "apt-cache"
    apt.write_text(
        "#!/bin/sh\n"
        'for name; do :; done\n[ "$2 $3" != "-t experimental" ] && [ $# = 4 ] && exit 9\n'
        "case $name in hipcc) found=7.2.4+dfsg-1 ;; libcub-dev) found=2.3 ;;\n"
        '  virtual) found="(none)" ;; *) exit 0 ;; esac\n'
        'printf "%s:\\n  Installed: (none)\\n  Candidate: %s\\n" "$name" "$found"\n'
    )
    apt.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"set -f; bash {ROOT}/pkg/torchwheel/data/docker/expect-versions.sh {call}"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (says is not None), done.stderr
    assert done.stderr.startswith(says or "")
    assert done.stderr.count("\n") == (says is not None)
