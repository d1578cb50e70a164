import platform

import pytest


@pytest.fixture(autouse=True)
def usual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are those of the usual machine, wherever the tests run."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
