"""The sources that a release is held to, and when its smoke tests can have run.

A test ran after the commit of its sources, and before the time of a clock that is right.
"""

import dataclasses
import datetime
import time
from pathlib import Path

from torchwheel.findings import CheckResult
from torchwheel.index.listing import utc_time
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline.git import commit_time
from torchwheel.pipeline.sources import project_folder, source_digest, tests_folder, tree_of
from torchwheel.smoke.smoke_record import SCHEMA, SmokeRecord
from torchwheel.smoke.testing import Suite, read_suite
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.text import escape, quote
from torchwheel_runtime.toolkit.cache import cache_folder

CLOCK_SKEW = 300.0
"""Seconds that the clocks of two machines may differ."""
_SET_CLOCK = "set the clock of that machine, and smoke-test this wheel again"


def date_fault(date: str, committed: float | None, latest: float, clock: str = "now") -> str | None:
    """Why a smoke test cannot have run at the date of its record; None if it can.

    Args:
        date: as the record has it.
        committed: when the sources were, in seconds since 1970; None outside a checkout.
        latest: a time after the test, likewise.
        clock: what time that is.
    """
    seconds = _seconds(date)
    if seconds is None:
        return f"was smoke-tested at {quote(date)}; expected e.g. {utc_time(latest)}"
    if seconds > latest + CLOCK_SKEW:
        why = f"later than {clock}, {utc_time(latest)}"
    elif committed and seconds + CLOCK_SKEW < committed:
        why = f"before the commit of {utc_time(committed)}"
    else:
        return None
    return f"was smoke-tested at {date}, {why}; {_SET_CLOCK}"


def judge_date(path: Path, signed: datetime.datetime, sources: Path) -> CheckResult:
    """Hold the date of a smoke record to its signature, whose time no clock of its job has made.

    Args:
        path: the record.
        signed: when it was signed.
        sources: a checkout of the commit.

    Raises:
        TorchwheelError: the file is no smoke record.
    """
    try:
        date = read_json(path, SmokeRecord, schema=SCHEMA).date
    except MalformedError as error:
        raise TorchwheelError(f"{escape(str(path))}: not a smoke record: {error.reason}") from None
    fault = date_fault(date, commit_time(sources), signed.timestamp(), "its signature")
    return CheckResult("date", fault is None, fault or date)


def _seconds(date: str) -> float | None:
    """Seconds since 1970; None for a text that is no date with a zone."""
    try:
        read = datetime.datetime.fromisoformat(date)
        return read.timestamp() if read.tzinfo else None
    except (ValueError, OverflowError):
        return None


@dataclasses.dataclass(frozen=True)
class ReleaseSources:
    """The sources at hand, which the artifacts of a release are held to.

    Attributes:
        matrix: the matrix.
        suite: its smoke tests.
        digest: of the project's files that git knows.
        committed: when they were committed, in seconds since 1970; None outside a checkout.
        now: the time, likewise.
    """

    matrix: Matrix
    suite: Suite
    digest: str
    committed: float | None
    now: float


def read_sources(matrix: Matrix, root: Path) -> ReleaseSources:
    """Read the sources of a release; `root` is the folder of the matrix."""
    source = project_folder(matrix, root, cache_folder(), Quiet())
    tests = tests_folder(matrix, root, source)
    return ReleaseSources(
        matrix,
        read_suite(tests) if tests else Suite("", {}),
        source_digest(source, tree=tree_of(matrix, source), tracked=True),
        commit_time(root),
        time.time(),
    )
