import signal
import threading
import time
from collections import defaultdict
from concurrent import futures
from concurrent.futures import CancelledError
from concurrent.futures._base import DoneAndNotDoneFutures
from pathlib import Path

import pytest
from at_work import AtWork
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.matrix.load import load
from torchwheel.matrix.variants import resolve
from torchwheel.pipeline import build_records, schedule
from torchwheel.pipeline.build_records import FOLDER, BuildRecord, Selection
from torchwheel.pipeline.inside import Usage, usage
from torchwheel.pipeline.schedule import (
    build_order,
    chains_of,
    in_chains,
    in_order,
    jobs_each,
    parts_each,
    side_by_side,
    slots,
)
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.tasks import HEARING

VARIANTS = resolve(load(Path(__file__).parents[1] / "matrix" / "full.yaml"))
# Two toolkits for each of two torches, and one for a third; two Pythons.
FOREIGN = resolve(
    load(Path(__file__).parents[2] / "containers" / "foreign" / "torch-scatter" / "matrix.yaml")
)


def record(variant):
    return BuildRecord(variant.id, "key", "file", "hash", 1, (), "tag", 7, "passed", 1.0, {})


def test_one_failure_does_not_stop_the_rest_and_the_order_is_kept():
    def work(variant):
        if variant is VARIANTS[1]:
            raise TorchwheelError("nvcc died")
        return record(variant), True

    outcomes = side_by_side(VARIANTS[:5], work, 2)
    assert [outcome.variant for outcome in outcomes] == list(VARIANTS[:5])
    assert [outcome.error for outcome in outcomes] == [None, "nvcc died", None, None, None]


def test_a_wrong_call_stops_what_has_not_begun():
    begun = []

    def work(variant):
        begun.append(variant)
        raise UsageError("no such toolkit")

    with pytest.raises(UsageError, match="no such toolkit"):
        side_by_side(VARIANTS[:8], work, 1)
    assert len(begun) < 8


def test_as_many_are_at_work_as_asked_for_and_no_more():
    at_work = AtWork()

    def work(variant):
        with at_work:
            return record(variant), True

    side_by_side(VARIANTS[:9], work, 3)
    assert at_work.most == 3


def test_pythons_of_a_torch_are_built_one_after_the_other():
    """Those at work at once would each compile what the first one leaves in the cache."""
    toolkits, all_ = defaultdict(AtWork), AtWork()

    def work(variant):
        with toolkits[variant.toolkit.name, variant.torch_release], all_:
            return record(variant), True

    outcomes = side_by_side(FOREIGN, work, 10)
    assert [outcome.variant for outcome in outcomes] == list(FOREIGN)
    assert [at_work.most for at_work in toolkits.values()] == [1] * 5
    assert all_.most == 5
    assert jobs_each(FOREIGN, 10, 10) == 2
    # Those of our own flavours share their kernels by a lock, and have a front end each.
    assert len(chains_of(VARIANTS)) == len(VARIANTS)


class DyingWork:
    """Work of which one item fails, and the others end after it did."""

    def __init__(self, dies, error):
        self.dies, self.error = dies, error
        self.begun, self.finished, self.failed = [], [], threading.Event()

    def __call__(self, item):
        self.begun.append(item)
        if item == self.dies:
            self.failed.set()
            raise TorchwheelError(self.error)
        assert self.failed.wait(10)
        time.sleep(0.2)
        self.finished.append(item)


@pytest.fixture
def machine(monkeypatch):
    """`machine(cores, free)`: this machine has so many cores, and bytes of free memory."""

    def be(cores, free):
        monkeypatch.setattr(schedule, "_cores", lambda: cores)
        monkeypatch.setattr(schedule, "available_memory", lambda: free)

    return be


@pytest.mark.parametrize(
    ("variants", "cores", "free", "expected"),
    [(20, 2, 64 << 30, 2), (20, 64, 9 << 30, 2), (1, 64, 64 << 30, 1), (5, 4, 1 << 30, 1)],
)
def test_slots_keep_to_cores_and_memory(machine, variants, cores, free, expected):
    machine(cores, free)
    assert slots(variants) == expected


@pytest.mark.parametrize(
    ("native", "pure", "at_once", "jobs", "expected"),
    [(1, 1, 2, 2, 2), (2, 0, 2, 8, 4), (24, 1, 4, 8, 2), (0, 1, 1, 8, 8), (24, 0, 24, 8, 1)],
)
def test_only_what_compiles_has_a_share_of_the_compilers(native, pure, at_once, jobs, expected):
    natives = [variant for variant in VARIANTS if variant.toolkit]
    plain = [variant for variant in VARIANTS if not variant.toolkit]
    assert len(plain) >= pure
    variants = [*(natives * 24)[:native], *plain[:pure]]
    assert jobs_each(variants, at_once, jobs) == expected


@given(st.lists(st.sampled_from(VARIANTS), unique=True))
def test_turns_lose_nothing_and_never_repeat_a_toolkit_while_another_waits(variants):
    turned = build_order(variants)
    assert sorted(v.id for v in turned) == sorted(v.id for v in variants)
    names = [v.toolkit.name if v.toolkit else "" for v in turned]
    first = {name: names.index(name) for name in names}
    assert max(first.values(), default=0) == max(len(first) - 1, 0)


def test_the_last_call_is_repeated(tmp_path):
    request = Selection(("release",), ("9.0",), container=True)
    build_records.save_request(tmp_path, request)
    assert build_records.last_request(tmp_path) == request


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no run has written to"),
        ('{"variants": ', r"--resume: .*: expected JSON, found .*; name variants"),
        ("{}", r'--resume: .*: expected key "variants", found none; name'),
    ],
)
def test_nothing_to_resume_is_a_wrong_call(tmp_path, text, says):
    (tmp_path / FOLDER).mkdir()
    if text:
        (tmp_path / FOLDER / build_records.REQUEST_FILE).write_text(text)
    with pytest.raises(UsageError, match=says):
        build_records.last_request(tmp_path)


def test_usage_is_read_from_either_version_of_control_groups(tmp_path):
    assert usage(tmp_path) == Usage(None, None)
    old = tmp_path / "old"
    (old / "cpuacct").mkdir(parents=True)
    (old / "memory").mkdir()
    (old / "cpuacct" / "cpuacct.usage").write_text("1500000000\n")
    (old / "memory" / "memory.max_usage_in_bytes").write_text("4096\n")
    assert usage(old) == Usage(1.5, 4096)
    new = tmp_path / "new"
    new.mkdir()
    (new / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (new / "memory.peak").write_text("8192\n")
    assert usage(new) == Usage(2.5, 8192)


def test_results_have_the_order_of_the_items_whichever_ends_first():
    second, begun = threading.Event(), []

    def work(item):
        begun.append(item)
        if item == 0:
            assert second.wait(10)
        second.set()
        return item * 10

    assert in_order(range(5), work, 2) == [0, 10, 20, 30, 40]
    begun.clear()
    in_order(range(5), work, 1)
    assert begun == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("chains", "dies", "begun"),
    [([[0], [1], [2], [3]], 1, [0, 1]), ([[0, 1], [2, 3]], 2, [0, 2])],
    ids=["items", "a chain"],
)
def test_after_an_error_nothing_is_begun_and_what_is_at_work_is_finished(chains, dies, begun):
    work = DyingWork(dies, "nvcc died")
    with pytest.raises(TorchwheelError, match="nvcc died"):
        in_chains(chains, work, 2)
    assert work.finished == [0]
    assert sorted(work.begun) == begun


def end_of_wait(*_, **__):
    time.sleep(0.2)
    return DoneAndNotDoneFutures(set(), set())


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("wait", "error"),
    [(end_of_wait, TorchwheelError), (interrupt, KeyboardInterrupt)],
    ids=["before the waiting thread hears of an error", "after an interrupt"],
)
def test_nothing_is_begun(monkeypatch, wait, error):
    begun = []

    def work(item):
        begun.append(item)
        if error is TorchwheelError:
            raise TorchwheelError("front end died")
        time.sleep(0.2)

    monkeypatch.setattr(schedule, "wait", wait)
    with pytest.raises(error):
        in_order(range(5), work, 1)
    assert begun == [0]


def test_nothing_is_begun_once_a_signal_has_come(monkeypatch):
    """The program of an item may end of it before the waiting thread hears of it."""
    ending, begun = threading.Event(), []
    monkeypatch.setattr(schedule, "ENDING", ending)

    def work(item):
        begun.append(item)
        ending.set()

    with pytest.raises(CancelledError):
        in_order(range(2), work, 1)
    assert begun == [0]


def test_a_signal_that_interrupts_no_wait_is_heard_in_time(monkeypatch):
    """The program of an item, which it ended, is said to be stopped, not to have failed."""
    waiting, ending, in_time = threading.Event(), threading.Event(), []

    def wait(*arguments):
        waiting.set()
        return futures.wait(*arguments)

    def hear(*_):
        ending.set()
        raise KeyboardInterrupt

    def work(item):
        waiting.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        in_time.append(ending.wait(HEARING))

    monkeypatch.setattr(schedule, "wait", wait)
    before = signal.signal(signal.SIGINT, hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_order(range(2), work, 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert in_time == [True]


def test_of_several_errors_that_of_the_first_item_is_raised():
    both = threading.Barrier(2)

    def work(item):
        both.wait(10)
        time.sleep(0.1 * (1 - item))
        raise TorchwheelError(f"part {item} died")

    with pytest.raises(TorchwheelError, match="part 0 died"):
        in_order(range(2), work, 2)


UNIVERSAL = next(v for v in resolve(load(Path("matrix.yaml"))) if v.parts)
PURE = next(v for v in VARIANTS if not v.toolkit)


@pytest.mark.parametrize(
    ("native", "at_once", "jobs", "most", "max_jobs", "cores", "free", "expected"),
    [
        (1, 2, 2, None, "", 2, 8 << 30, 2),
        (1, 2, 2, None, "", 2, 3 << 30, 1),  # two parts would run four compilers
        (1, 2, 16, None, "", 16, 64 << 30, 4),
        (1, 1, 2, 1, "", 2, 8 << 30, 1),  # --at-once 1
        (1, 3, 8, 3, "", 8, 64 << 30, 3),
        (1, 2, 2, None, "2", 2, 8 << 30, 1),
        (4, 2, 1, None, "", 2, 8 << 30, 1),  # other variants compile beside it
        (2, 2, 8, 8, "", 16, 256 << 30, 4),
        (1, 2, 2, None, "", 2, 0, 1),
    ],
)
def test_parts_at_a_time_keep_to_cores_memory_and_what_was_asked(
    machine, monkeypatch, native, at_once, jobs, most, max_jobs, cores, free, expected
):
    machine(cores, free)
    monkeypatch.setenv("MAX_JOBS", max_jobs)
    assert parts_each([*[UNIVERSAL] * native, PURE], at_once, jobs, most=most) == expected
