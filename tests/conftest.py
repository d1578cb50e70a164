"""Fixtures and options that every test shares."""

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write golden files anew from what comes out"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """`golden(name, text)`: text equals the file `golden/<name>` beside the test, or a given path.

    With --update-goldens the file is written instead.
    """

    def check(name: str | Path, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {path}: run pytest --update-goldens"
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.name} is out of date: look at the difference, then run pytest --update-goldens"
        )

    return check
