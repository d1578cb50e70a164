"""A project and its bundled package: the real tools build, try, index and install both."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bundled_package import WHEEL, add_bundled_package
from checkout import ROOT
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline import bundled
from torchwheel.pipeline.bundled import build_bundled
from torchwheel.smoke.requirements import is_pinned, read_lock
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

TINY = Path(__file__).parent / "tiny"
PURE = "tiny-0.1-py3-none-any.whl"


@pytest.fixture
def helper(tiny):
    return add_bundled_package(tiny)


@pytest.fixture
def build(tiny, helper, torchwheel):
    """Builds the pure wheel; what it does is then in `stderr`."""

    def run(status: int = 0) -> subprocess.CompletedProcess[str]:
        return torchwheel("wheels", "pure", cwd=tiny, status=status)

    return run


def test_it_is_tried_indexed_and_installed_with_the_wheel(tiny, build, torchwheel):
    done = build()
    wheel = tiny / "dist" / "bundled" / WHEEL
    record = json.loads((tiny / "dist" / "smoke" / "pure.json").read_text())
    assert record["bundled"] == {WHEEL: sha256(wheel)}
    assert [one["file"] for one in record["imported"]] == [
        "tiny/__init__.py",
        "tiny_helper/__init__.py",
    ]
    assert (tiny / "dist" / "index" / "cpu" / "tiny-helper" / "index.json").is_file()
    command = ["pip", "install", "--dry-run", "--quiet", "--report=-", "tiny==0.1"]
    index = (tiny / "dist" / "index" / "cpu").as_uri()
    told = subprocess.run(
        [sys.executable, "-m", *command, "--extra-index-url", index],
        check=True,
        capture_output=True,
        text=True,
    )
    chosen = {
        one["metadata"]["name"]: one["download_info"] for one in json.loads(told.stdout)["install"]
    }
    assert chosen["tiny-helper"]["archive_info"]["hashes"]["sha256"] == sha256(wheel)

    # Another machine: what lies beside the wheel is all there is.
    there = tiny.parent / "there"
    shutil.copytree(tiny / "dist" / "bundled", there / "bundled")
    shutil.copy(tiny / "dist" / PURE, there)
    call = ("smoke", there / PURE, "--here", "--tests", tiny / "smoke", "--record", "r.json")
    done = torchwheel(*call, cwd=there)
    assert json.loads((there / "r.json").read_text())["bundled"] == record["bundled"]
    shutil.rmtree(there / "bundled")
    done = torchwheel(*call, cwd=there, status=1)
    assert done.stderr.splitlines()[-1] == (
        f"torchwheel: {PURE} needs tiny-helper<2,>=1, which is not installed here"
    )


@pytest.mark.nightly
def test_from_its_first_build_to_its_last(tiny, helper, build):
    """Each step begins with what the one before left: its smoke tests take most of the time."""
    build()
    wheel = tiny / "dist" / "bundled" / WHEEL
    first = (wheel.stat().st_mtime_ns, sha256(wheel))

    # It is built once.
    again = build()
    assert "nothing to do" in again.stderr
    assert (wheel.stat().st_mtime_ns, sha256(wheel)) == first

    # If it was changed or lost, it is built again: the same bytes, so no wheel is tried again.
    for bend in (lambda: wheel.write_bytes(b"PK"), wheel.unlink):
        bend()
        done = build()
        assert sha256(wheel) == first[1]
        assert "nothing to do" in done.stderr

    # If its sources change, so does it, and the wheel is tried with it.
    (helper / "tiny_helper" / "__init__.py").write_text("ONE = 1.0  # as before\n")
    touched = build()
    assert "bundled package parts/helper: building" in touched.stderr
    assert "nothing to do" not in touched.stderr
    assert sha256(wheel) != first[1]
    record = json.loads((tiny / "dist" / ".torchwheel" / "pure.json").read_text())
    assert record["bundled"] == {WHEEL: sha256(wheel)}
    assert list((tiny / "dist" / "index").rglob(PURE))

    # A wheel that was tried with another one is not offered.
    (helper / "tiny_helper" / "__init__.py").write_text("ONE = 2.0\n")
    done = build(status=1)
    assert "failed: pure: smoke: 1 of " in done.stdout
    assert not list((tiny / "dist" / "index").rglob("*.whl"))

    # If the matrix no longer names it, it goes.
    for name, old, new in (
        ("matrix.yaml", ", bundled: [parts/helper]", ""),
        ("pyproject.toml", ', "tiny-helper>=1,<2"', ""),
        ("tiny/__init__.py", " * tiny_helper.ONE", ""),
        ("tiny/__init__.py", "import tiny_helper\n", ""),
    ):
        path = tiny / name
        path.write_text(path.read_text().replace(old, new))
    done = build()
    assert not (tiny / "dist" / "bundled").exists()
    assert not (tiny / "dist" / "index" / "cpu" / "tiny-helper").exists()


def test_two_folders_users_and_days_give_the_same_bytes(tmp_path):
    digests = set()
    for name, mask in (("one", 0o022), ("another/place", 0o077)):
        before = os.umask(mask)
        try:
            project = Path(shutil.copytree(TINY, tmp_path / name))
            for path in add_bundled_package(project).rglob("*.py"):
                os.utime(path, (mask, mask))
            (project / "dist" / ".torchwheel").mkdir(parents=True)
            (wheel,) = build_bundled(project, ["parts/helper"], project / "dist", Quiet())
        finally:
            os.umask(before)
        digests.add(sha256(wheel))
    assert len(digests) == 1


def test_what_is_no_source_does_not_get_in(tiny, helper, tmp_path):
    (tiny / ".gitignore").write_text("*.bin\n")
    subprocess.run(["git", "init", "--quiet", str(tiny)], check=True)
    (helper / "tiny_helper" / "left.bin").touch()
    (tmp_path / "dist" / ".torchwheel").mkdir(parents=True)
    (wheel,) = build_bundled(tiny, ["parts/helper"], tmp_path / "dist", Quiet())
    assert "tiny_helper/__init__.py" in read_wheel(wheel).members
    assert "tiny_helper/left.bin" not in read_wheel(wheel).members


@pytest.fixture
def locked(tiny, helper, tmp_path, monkeypatch):
    """The helper is torchwheel-runtime, which requires packaging; torchwheel's lock, and builds."""
    text = (helper / "pyproject.toml").read_text()
    named = text.replace(
        '"tiny-helper"', '"torchwheel-runtime"\ndependencies = ["packaging>=24.2"]'
    )
    (helper / "pyproject.toml").write_text(named)
    wheel = make_wheel(tmp_path / "links", name="packaging", version="26.3", claims=None)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(bundled, "LOCK", tmp_path / "lock.txt")
    (tmp_path / "dist" / ".torchwheel").mkdir(parents=True)

    def build(digest: str) -> list[Path]:
        bundled.LOCK.write_text(f"packaging==26.3 --hash=sha256:{digest}\n")
        return list(build_bundled(tiny, ["parts/helper"], tmp_path / "dist", Quiet()))

    return wheel, build


def test_what_the_runtime_requires_is_bundled_with_it_by_its_hash(locked):
    wheel, build = locked
    taken, runtime = build(sha256(wheel))
    assert taken.read_bytes() == wheel.read_bytes()
    assert runtime.name.startswith("torchwheel_runtime-")
    # What is there is not downloaded again when the sources change.
    wheel.unlink()
    bundled.LOCK.touch()
    (taken.parent.parent / ".torchwheel" / "bundled.built").unlink()
    assert [path.name for path in build(sha256(taken))] == [taken.name, runtime.name]


def test_another_file_than_that_of_the_lock_is_not_bundled(locked):
    _, build = locked
    with pytest.raises(TorchwheelError, match=r"^bundled package packaging: .*hash") as caught:
        build("0" * 64)
    assert "\n" not in str(caught.value)


def test_the_lock_has_what_the_runtime_requires():
    """Else no index would have it, and the one command that is printed would fail."""
    project = ROOT / "pkg" / "torchwheel_runtime" / "pyproject.toml"
    needed = re.findall(r'^dependencies = \["(.*)"\]', project.read_text(), re.M)
    assert [is_pinned(Requirement(one), read_lock(bundled.LOCK, {})) for one in needed] == [True]


def has_machine_code(helper: Path) -> None:
    (helper / "tiny_helper" / "code.bin").write_bytes(b"\x7fELF")


def is_for_one_machine(helper: Path) -> None:
    options = {"bdist_wheel": {"plat_name": "linux_x86_64"}}
    (helper / "setup.py").write_text(f"from setuptools import setup\nsetup(options={options})\n")


def cannot_be_built(helper: Path) -> None:
    (helper / "setup.py").write_text("raise SystemExit('error: not today')\n")


@pytest.mark.parametrize(
    ("bend", "says"),
    [
        (
            has_machine_code,
            f"{WHEEL}: a bundled package is pure Python, but tiny_helper/code.bin is machine",
        ),
        (
            is_for_one_machine,
            "a bundled package has the tag py3-none-any; got py3-none-linux_x86_64",
        ),
        (cannot_be_built, "not today (all of it in "),
    ],
)
def test_one_that_is_none_stops_the_run_before_anything_is_built(tiny, helper, build, bend, says):
    bend(helper)
    done = build(status=1)
    assert says in done.stderr.splitlines()[-1]
    assert "pure: building" not in done.stderr
    assert not (tiny / "dist" / "bundled").exists()
    assert not list((tiny / "dist").glob("*.whl"))
