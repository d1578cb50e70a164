import pytest

from jitmaker import Builds, Told, make_library, wanted


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "jit"


@pytest.fixture
def library(folder):
    """A library in the cache."""
    return make_library(folder, wanted(), Builds(), Told())
