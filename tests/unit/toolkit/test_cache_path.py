"""Where the cache is: as platformdirs says, without its cost."""

from pathlib import Path

import pytest

from torchwheel.errors import TorchwheelError
from torchwheel.toolkit.cache import cache_folder, cache_path


@pytest.mark.parametrize("users", [None, "", " ", "/elsewhere", "relative", "~/not-a-home"])
def test_it_is_in_the_users_cache_folder(users, monkeypatch):
    platformdirs = pytest.importorskip("platformdirs", reason="platformdirs is not installed")
    monkeypatch.delenv("TORCHWHEEL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if users is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", users)
    assert cache_path() == platformdirs.user_cache_path("torchwheel").resolve()


def test_the_user_can_name_another_and_only_the_user_may_read_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHWHEEL_CACHE", "mine/cache")
    assert cache_path() == tmp_path / "mine" / "cache"
    assert not (tmp_path / "mine").exists()
    assert cache_folder() == Path(tmp_path, "mine", "cache")
    assert cache_folder().stat().st_mode & 0o777 == 0o700


def test_a_ring_of_links_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "ring").symlink_to("ring")
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "ring" / "cache"))
    with pytest.raises(TorchwheelError, match="Too many levels of symbolic links; set TORCH"):
        cache_folder()
