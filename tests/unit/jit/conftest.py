import tempfile

import pytest

from jitmaker import Builds, Told, make_library, wanted
from torchwheel_runtime import files


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "jit"


@pytest.fixture
def library(folder):
    """A library in the cache."""
    return make_library(folder, wanted(), Builds(), Told())


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, for this test alone."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    files._private_folder.cache_clear()
    yield path
    files._private_folder.cache_clear()
