import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import signing


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


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> "signing.Root":
    """A root of trust: made once, as keys take their time."""
    import signing

    return signing.open_root(tmp_path_factory.mktemp("roots") / "ours")
