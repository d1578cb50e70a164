"""torchwheel's own wheel, packed again from what was installed, and bundled as a file."""

import importlib.metadata
import zipfile

import pytest

from torchwheel.pipeline import bundled as module
from torchwheel.pipeline.bundled import build_bundled, own_wheels
from torchwheel.pipeline.repair import repack_members, wheel_members
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel


@pytest.fixture
def wheel(tmp_path):
    """A small torchwheel, packed as ours are."""
    made = make_wheel(
        tmp_path / "made",
        name="torchwheel",
        version="0.1.0",
        claims=None,
        requires=("packaging",),
        files={
            "torchwheel/__init__.py": b"",
            "torchwheel/data/docker/cuda.Dockerfile": b"FROM x\n",
        },
    )
    return repack_members(wheel_members(made), tmp_path / made.name)


@pytest.fixture
def site(tmp_path, wheel, monkeypatch):
    """That wheel as pip installs it: with files of its own, and compiled modules."""
    folder = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    info = folder / "torchwheel-0.1.0.dist-info"
    (folder / "torchwheel" / "__pycache__").mkdir()
    (folder / "torchwheel" / "__pycache__" / "x.pyc").touch()
    for name in ("INSTALLER", "REQUESTED", "direct_url.json"):
        (info / name).write_text("pip\n")
    with (info / "RECORD").open("a") as record:
        record.write("torchwheel/__pycache__/x.pyc,,\n../../bin/torchwheel,sha256=a,1\n")
        record.writelines(
            f"torchwheel-0.1.0.dist-info/{name},,\n"
            for name in ("INSTALLER", "REQUESTED", "direct_url.json")
        )
    found = importlib.metadata.Distribution.at(info)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: found)
    monkeypatch.setattr(module, "PACKAGES", (folder / "torchwheel",))
    return folder


def test_an_installed_one_gives_the_bytes_of_its_wheel(site, wheel, tmp_path):
    (tmp_path / "out").mkdir()
    (made,) = own_wheels(tmp_path / "out")
    assert made.read_bytes() == wheel.read_bytes()


def test_a_file_that_was_changed_since_is_one_line(site, tmp_path):
    (site / "torchwheel" / "__init__.py").write_text("import os\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(TorchwheelError, match="is not the file that was installed") as caught:
        own_wheels(tmp_path / "out")
    assert len(str(caught.value).splitlines()) == 1
    assert not list((tmp_path / "out").iterdir())


def test_a_bundled_wheel_is_taken_as_it_is(wheel, tmp_path):
    dist = tmp_path / "dist"
    (dist / ".torchwheel").mkdir(parents=True)
    (taken,) = build_bundled(tmp_path, [wheel.name], dist, Quiet())
    assert taken.read_bytes() == wheel.read_bytes()
    # Another file of that name is taken anew.
    make_wheel(tmp_path, name="torchwheel", version="0.1.0", claims=None, requires=())
    (taken,) = build_bundled(tmp_path, [wheel.name], dist, Quiet())
    assert taken.read_bytes() == wheel.read_bytes()
    assert "torchwheel/data" not in str(zipfile.ZipFile(taken).namelist())
