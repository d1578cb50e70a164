import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def dated_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots of the matrix, also where CI asks for today's packages."""
    monkeypatch.delenv("TORCHWHEEL_SNAPSHOTS", raising=False)


@pytest.fixture(autouse=True, scope="session")
def no_disk() -> Iterator[None]:
    """Files are not waited for until the disk has them; tests/faults cut the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
