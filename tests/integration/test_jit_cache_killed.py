"""However a run is killed, the next one succeeds, and no reader ever sees half an entry."""

import os
import random
import signal
import threading
import time

import pytest

from jitmaker import Process, Told, find_library, library_of, make_library, wanted
from torchwheel_runtime.builder import ninja
from torchwheel_runtime.builder.ninja import Step
from torchwheel_runtime.jit.lookup import CorruptError, open_verified

pytestmark = pytest.mark.integration

SIZE = 32 << 20
BUILD = 0.4
"""Seconds that a build takes."""
MOMENTS = ["any"] * 2 + ["waiting"] * 2 + ["building"] * 2 + ["built"] * 4


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jit"


class Reader(threading.Thread):
    """Looks at libraries all the time; whatever is there must be whole."""

    def __init__(self, folder) -> None:
        super().__init__(daemon=True)
        self.folder, self.text = folder, "none"
        self.looks, self.wrong = 0, []
        self.stop = False

    def run(self) -> None:
        while not self.stop:
            text = self.text
            try:
                library, _ = open_verified(self.folder, wanted(text).key)
                if library.path.stat().st_size != SIZE:
                    self.wrong.append("size")
            except FileNotFoundError:
                pass
            except CorruptError as error:
                self.wrong.append(str(error))
            self.looks += 1
            time.sleep(0.001)


@pytest.fixture
def reader(folder):
    thread = Reader(folder)
    thread.start()
    yield thread
    thread.stop = True
    thread.join()


def kill(process, seconds):
    time.sleep(seconds)
    process.popen.send_signal(signal.SIGKILL)
    return process.ended()


@pytest.fixture
def write(folder):
    """Seconds in which a library is copied, hashed and put in its place here."""
    process = Process(folder, "first", size=SIZE)
    process.start()
    process.until("built")
    begun = time.monotonic()
    process.until("made")
    seconds = time.monotonic() - begun
    assert process.ended() == 0
    return seconds


def killed(folder, text, moment, chance, write):
    """One run, killed; where it waits, the run that it waits for."""
    holder = None
    if moment == "waiting":
        holder = Process(folder, text, size=SIZE, seconds=BUILD)
        holder.start()
        holder.until("building")
    process = Process(folder, text, size=SIZE, seconds=BUILD)
    process.start()
    if moment == "any":
        kill(process, chance.uniform(0, 0.2 + BUILD + write))
    elif moment == "waiting":
        process.until("said")
        # Half the time it has the lock meanwhile, and holds what the other made in its hands.
        kill(process, chance.uniform(0, 2 * BUILD))
    else:
        process.until(moment)
        kill(process, chance.uniform(0, BUILD if moment == "building" else write))
    return holder


@pytest.mark.nightly
def test_after_a_kill_at_any_moment_the_next_run_succeeds(folder, write, reader):
    chance = random.Random(20)
    stages, left = [], 0
    for number, moment in enumerate(MOMENTS):
        text = reader.text = f"source {number}"
        holder = killed(folder, text, moment, chance, write)
        stages.append(find_library(folder, wanted(text).key).library is not None)
        left += len(list(folder.glob("*/.*.temporary")))
        following = Process(folder, text, size=SIZE)
        following.start()
        assert following.ended() == 0, following.lines
        if holder:
            assert holder.ended() == 0, holder.lines
        library = find_library(folder, wanted(text).key).library
        assert following.lines[-1] == f"made {library}"
        assert library.read_bytes() == library_of(text, SIZE)
        assert not list(folder.glob("*/.*.temporary"))
    assert reader.wrong == []
    assert reader.looks > 100
    assert left, "no kill fell into the writing of an entry"
    assert not all(stages[-4:]), "every kill came too late"


def test_who_waits_for_a_build_that_is_killed_builds(folder):
    first = Process(folder, "one", seconds=30)
    first.start()
    first.until("building")
    second = Process(folder, "one")
    second.start()
    second.until("said ext.scale: another process builds it: waiting for it")
    kill(first, 0)
    assert second.ended() == 0
    assert second.lines[-1].startswith("made ")
    assert "building" in second.lines


COMPILE = (
    "data=$(cat ../source/scale.cu); touch started; "
    'case $data in old*) sleep 2; esac; echo "$data" > object'
)
LINK = "sleep 2.5; cp object ext.so"


def compile_with_ninja(folder, output):
    """The compiler is slow for the old source, and outlives a build that is killed."""
    source = str(folder / "scale.cu")
    steps = (
        Step("CUDA scale.cu", ("sh", "-c", COMPILE), (source,), "object"),
        Step("link", ("sh", "-c", LINK), ("object",), "ext.so"),
    )
    (library,) = ninja.run(steps, output, 2, lambda _: None)
    return library


@pytest.mark.nightly
def test_compilers_that_outlive_a_killed_build_write_nothing_into_the_next_one(folder):
    """The old compiler ends while the next build, of a newer source, is about to link."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        make_library(folder, wanted("old source"), compile_with_ninja, Told())
        os._exit(0)
    begun = time.monotonic()
    while not list(folder.glob("*/work-*/build/started")):
        assert time.monotonic() - begun < 60
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.killpg(child, 0)  # ninja lives, and ends by itself
    library = make_library(folder, wanted("new source"), compile_with_ninja, Told())
    assert library.read_text() == "new source\n"
