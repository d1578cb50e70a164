import pytest


@pytest.fixture(autouse=True)
def dated_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots of the matrix, also where CI asks for today's packages."""
    monkeypatch.delenv("TORCHWHEEL_SNAPSHOTS", raising=False)
