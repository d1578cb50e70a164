"""What is told of the cache, which may be anything."""

import os

import pytest

from jitmaker import Builds, Told, make_library, wanted
from torchwheel.doctor import caches
from torchwheel.errors import TorchwheelError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_one_that_is_not_there_yet_can_be_made_and_is_not(folder):
    found = caches.examine_cache()
    assert (found.folder, dict(found.sizes), found.problem) == (folder, {}, None)
    assert not folder.exists()


def test_sizes_by_part_the_largest_first(folder):
    for part, size in {"jit": 10, "toolkits": 1000, "empty": 0}.items():
        (folder / part / "deep").mkdir(parents=True)
        (folder / part / "deep" / "file").write_bytes(bytes(size))
    assert list(caches.examine_cache().sizes.items()) == [("toolkits", 1000), ("jit", 10)]


def test_a_file_in_its_way(folder):
    folder.write_text("")
    assert caches.examine_cache().problem == f"{folder} is not a folder"


@pytest.mark.parametrize("name", ["x" * 5000, "ring", "ring/cache"])
def test_a_path_that_leads_nowhere(folder, monkeypatch, name):
    (folder.parent / "ring").symlink_to("ring")
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(folder.parent / name))
    assert caches.examine_cache().problem


def test_a_user_without_a_home_folder(monkeypatch):
    def nowhere():
        raise TorchwheelError("home folder: expected HOME, found none; set TORCHWHEEL_CACHE")

    monkeypatch.setattr(caches, "cache_path", nowhere)
    assert caches.examine_cache().problem == (
        "home folder: expected HOME, found none; set TORCHWHEEL_CACHE"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_closed(folder):
    folder.mkdir(mode=0o500)
    assert caches.examine_cache().problem == f"{folder} cannot be written"


def test_a_folder_that_others_can_change(folder):
    folder.mkdir()
    folder.chmod(0o777)
    assert caches.examine_cache().problem == (
        f"{folder}: others may write to it (mode 0777); run `chmod go-w {folder}`, or set "
        "TORCHWHEEL_CACHE to a folder of your own"
    )


def test_a_library_that_was_changed(folder):
    library = make_library(folder / "jit", wanted(name="demo.scale"), Builds(), Told())
    assert caches.examine_cache().corrupt == ()
    library.chmod(0o644)
    library.write_bytes(b"junk")
    (corrupt,) = caches.examine_cache().corrupt
    line = str(corrupt)
    assert line.startswith("demo.scale-")
    assert line.endswith("/ext_scale.so: 4 bytes, 1000 expected")
    assert library.exists(), "the doctor changes nothing"
