"""Many processes and one cache: one builds, the others wait, and nobody sees half of anything."""

import multiprocessing
import random
import time

import pytest

from jitmaker import Builds, Process, Told, find_library, library_of, make_library, wanted
from torchwheel_runtime.files import sha256
from torchwheel_runtime.jit.lookup import open_verified
from torchwheel_runtime.jit.store import prune_cache

pytestmark = pytest.mark.integration

PROCESSES = 32


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jit"


def at_once(folder, text, seconds):
    """The processes, ended: each had imported all it needs when the first began."""
    processes = [Process(folder, text, seconds=seconds) for _ in range(PROCESSES)]
    for process in processes:
        process.until("ready")
    for process in processes:
        process.start()
    return [(process.ended(), process.lines) for process in processes]


def builds(folder):
    return (folder.parent / "builds").read_text().splitlines()


def test_of_32_processes_one_builds_and_the_others_wait(folder):
    ended = at_once(folder, "one", 3)
    assert len(builds(folder)) == 1
    assert [status for status, _ in ended] == [0] * PROCESSES
    library = find_library(folder, wanted("one").key).library
    assert {lines[-1] for _, lines in ended} == {f"made {library}"}
    assert library.read_bytes() == library_of("one")
    waited = [lines for _, lines in ended if "building" not in lines]
    assert len(waited) == PROCESSES - 1
    for lines in waited:
        assert lines[1] == "said ext.scale: another process builds it: waiting for it"


@pytest.mark.nightly
def test_a_build_that_fails_fails_for_all_who_wait_and_is_not_tried_32_times(folder):
    begun = time.monotonic()
    ended = at_once(folder, "fails", 3)
    assert len(builds(folder)) == 1
    assert time.monotonic() - begun < 3 * PROCESSES / 2
    assert {(status, lines[-1]) for status, lines in ended} == {
        (1, "failed /project/scale.cu(1): error: fails")
    }


def _makes(folder, seed, until):
    chance, made = random.Random(seed), 0
    while time.time() < until:
        text, told = str(chance.randrange(3)), Told()
        make_library(folder, wanted(text, name=text), Builds(200_000), told)
        made += f"{text}: building it" in told.said
        assert not [line for line in told.said if str(folder) in line], "something was corrupt"
    assert made, "nothing was ever removed"


def _prunes(folder, seed, until):
    chance = random.Random(seed)
    while time.time() < until:
        time.sleep(chance.random() / 100)
        prune_cache(folder, chance.choice([0, 300_000, 1 << 30]))


def _reads(folder, seed, until):
    found = 0
    while time.time() < until:
        for text in "012":
            try:
                library, entry = open_verified(folder, wanted(text, name=text).key)
            except FileNotFoundError:
                continue
            found += 1
            try:
                assert sha256(library.path) == entry.sha256
            except FileNotFoundError:
                continue
    assert found, "nothing was there to be read"


def test_who_reads_while_others_make_and_remove_sees_whole_libraries_or_none(folder):
    until = time.time() + 2.5
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=work, args=(folder, seed, until))
        for seed, work in enumerate([_makes, _makes, _makes, _prunes, _prunes, _reads, _reads])
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)
    prune_cache(folder, 0)
    assert list(folder.iterdir()) == []
