"""A first call on a GPU by a user without a home folder: the library is built for the process."""

import pwd
import stat
from pathlib import Path

import pytest

from torchwheel.builder.extension import Extension
from torchwheel.errors import TorchwheelError
from torchwheel.runtime import build
from torchwheel.toolkit.cache import cache_path


@pytest.fixture
def homeless(monkeypatch):
    """A user without HOME and without an entry in the table of users."""

    def none(_user):
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "TORCHWHEEL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", none)


def test_the_cache_has_no_path(homeless):
    with pytest.raises(
        TorchwheelError, match=r"home folder: expected HOME .*; set TORCHWHEEL_CACHE"
    ):
        cache_path()


def test_the_library_is_built_for_this_process_alone(homeless, tmp_path, monkeypatch, capsys):
    folders = []

    def make(folder, *_):
        folders.append(folder)
        return folder / "x.so"

    (tmp_path / "csrc").mkdir()
    monkeypatch.setattr(build, "source_folder", lambda *_: tmp_path / "csrc")
    monkeypatch.setattr(build, "find_local_target", lambda *_: None)
    monkeypatch.setattr(build, "_library_request", lambda *_: None)
    monkeypatch.setattr(build, "make_library", make)
    extension = Extension(package="demo", sources="csrc", operators=())
    library, step = build.obtain_library(extension, tmp_path, "scale", {})
    (folder,) = folders
    assert (library, step) == (folder / "x.so", "jit cache")
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert "what is built is for this process alone" in " ".join(capsys.readouterr().err.split())
