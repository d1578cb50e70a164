"""Fixtures of the tests of `torchwheel new` and `adopt`."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for torchwheel's own wheel; only its name and its bytes are used."""
    path = tmp_path_factory.mktemp("own") / "torchwheel_runtime-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path
