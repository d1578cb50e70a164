"""Fixtures and options that every test shares."""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

with contextlib.suppress(ImportError):
    # Before a test imports distutils: setuptools, which torch's build tools import, brings its own.
    import setuptools  # noqa: F401

# nox sets them for its sessions; a golden file has no colours.
for _name in ("FORCE_COLOR", "NO_COLOR"):
    os.environ.pop(_name, None)

# A busy machine is no failure. A test without a number of its own tries 40 examples.
hypothesis.settings.register_profile("unhurried", deadline=None, max_examples=40)
hypothesis.settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write golden files anew from what comes out"
    )
    faults = parser.getgroup("faults", "tests/faults")
    faults.addoption("--kills", type=int, help="kills of each kind of run")
    faults.addoption("--seed", type=int, help="of the random moments; a test prints its own")
    faults.addoption("--seconds", type=float, help="the longest time of each kind of run")
    faults.addoption("--no-skips", action="store_true", help="a test that is skipped has failed")
    faults.addoption("--record", help="JSON file that gets the counts")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k golden` choose the tests that have golden files."""
    if "golden" in getattr(item, "fixturenames", ()):
        item.extra_keyword_matches.add("golden")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Let a skipped test fail where nothing may be skipped."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("--no-skips"):
        report.outcome = "failed"
        report.longrepr = f"--no-skips, and {report.longrepr[2]}"
    return report


def pytest_terminal_summary(terminalreporter) -> None:
    """Say why tests were skipped, a line for each reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, for this test and its programs alone."""
    from torchwheel_runtime import files

    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    monkeypatch.setenv("TMPDIR", str(path))
    files._private_folder.cache_clear()
    yield path
    files._private_folder.cache_clear()


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
