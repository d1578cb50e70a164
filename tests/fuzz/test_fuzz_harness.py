"""The fuzzer notices every way to break a promise, and makes the same inputs of the same seed."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz_promise import Promise, fault_of_text
from fuzz_seeds import Corpus
from fuzz_targets import TARGETS, Target
from fuzz_workers import Batch, Pool, input_of

from torchwheel_runtime.errors import TorchwheelError

HERE = Path(__file__).parent
QUICK = Promise(seconds=0.4, mib=64)


def raises(text):
    raise TorchwheelError(text)


def loops(*_):
    while True:
        pass


def swallows(*_):
    """Catches what can be caught."""
    while True:
        with contextlib.suppress(Exception):
            loops()


def writes(path):
    Path(path).write_text("x")


def connects(*_):
    with socket.socket() as opened, contextlib.suppress(OSError):
        opened.connect(("127.0.0.1", 9))


# Each with a part of what is said of it; None of one that keeps its promise.
READERS: dict[str, tuple[Callable[..., object], str | None]] = {
    "returns": (lambda *_: None, None),
    "writes inside": (lambda _, folder: (folder / "x").write_text("x"), None),
    "refuses": (lambda *_: raises("x.whl: expected a wheel, found a text"), None),
    "raises another error": (lambda *_: {}["x"], "raises KeyError"),
    "recurses": (lambda *_: json.loads("[" * 100_000), "raises RecursionError"),
    "exits": (lambda *_: sys.exit(1), "raises SystemExit"),
    "two lines": (lambda *_: raises("one\ntwo"), "an error of 2 lines"),
    "a control character": (lambda *_: raises("x\x1b[2J"), r"'\x1b' in it"),
    "long": (lambda *_: raises("x" * 3000), "a long error: 3000 characters"),
    "loops": (loops, "no answer in 2.4 s"),
    "swallows every exception": (swallows, "no answer in 2.4 s"),
    "blocks": (lambda *_: sum(range(10**13)), "blocks its process"),
    "eats memory": (lambda *_: b"x" * (120 << 20), "MiB; 64 MiB promised"),
    "eats all memory": (lambda *_: bytearray(1 << 40), "wants more than 64 MiB"),
    "writes outside": (lambda *_: writes("/dev/fuzzed"), "writes outside its folder"),
    "removes outside": (
        lambda _, folder: (folder / "../../fuzzed").rmdir(),
        "os.rmdir outside its folder",
    ),
    "links outside": (
        lambda _, folder: (folder / "../../fuzzed-link").symlink_to("x"),
        "os.symlink outside its folder",
    ),
    "leaves a file": (lambda *_: tempfile.mkstemp(), "in the temporary folder"),
    "starts a program": (lambda *_: subprocess.run(["true"], check=False), "starts a program"),
    "forks": (lambda *_: os.fork() or os._exit(0), "starts a program"),
    "connects": (connects, "opens a connection"),
    "kills its process": (lambda *_: os.kill(os.getpid(), signal.SIGKILL), "ends its process: -9"),
}


def faults_of_readers() -> dict[str, list[str]]:
    """What is said of each reader. Each reads two inputs: the work goes on after a fault."""
    targets = {
        name: Target(read, lambda: Corpus({}, {}, {"a": b"", "b": b""}), lambda *_: b"", QUICK)
        for name, (read, _) in READERS.items()
    }
    accepts = Corpus({}, {"hostile": b""})
    targets["takes what is hostile"] = Target(
        READERS["returns"][0], lambda: accepts, lambda *_: b""
    )
    refuses = Corpus({"right": b""})
    targets["refuses what is right"] = Target(
        READERS["refuses"][0], lambda: refuses, lambda *_: b""
    )
    pool = Pool(2, targets)
    pool.run(
        (Batch(name, 0, len(target.corpus()), None) for name, target in targets.items()),
        lambda fault: None,
    )
    pool.close()
    inputs = {name: pool.tallies[name].inputs for name in targets}
    assert inputs == {name: len(target.corpus()) for name, target in targets.items()}
    return {name: [f.fault for f in pool.faults if f.target == name] for name in targets}


@pytest.fixture(scope="module")
def faults():
    # In a process of its own, as the pool's are copies of the one that starts them.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__]
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_a_promise_that_is_broken_is_noticed_and_one_that_is_kept_is_not(faults, name):
    _, said = READERS[name]
    assert len(faults[name]) == (2 if said else 0), faults[name]
    assert all(said in fault for fault in faults[name])


@pytest.mark.nightly
def test_the_corpus_says_which_inputs_are_right_and_which_are_hostile(faults):
    assert faults["takes what is hostile"] == ["accepts it"]
    assert faults["refuses what is right"] == ["refuses it"]


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_gives_the_same_inputs_again(name):
    one, other = Batch(name, 0, 0, 7), Batch(name, 0, 0, 8)
    inputs = [input_of(one, number)[1] for number in range(60)]
    assert inputs == [input_of(one, number)[1] for number in range(60)]
    assert inputs != [input_of(other, number)[1] for number in range(60)]
    assert len(set(inputs)) > 30


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x: expected 1, found 2; do it", None),
        ("", "without a text"),
        ("a\u202eb", "in it"),
        ("a\udc80", "in it"),
        ("a\nb", "2 lines"),
    ],
)
def test_a_line_for_a_person(text, fault):
    found = fault_of_text(text)
    assert (found is None) if fault is None else fault in found


def test_lines_are_allowed_where_each_mistake_has_one():
    assert fault_of_text("a\nb", lines=True) is None
    assert fault_of_text("a\r\nb", lines=True) is not None


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_reach_beyond_the_first_check(name, tmp_path):
    """Among the mutated inputs are some that the reader takes, and some that it does not."""
    target = TARGETS[name]
    rng = random.Random(1)
    small = list(target.corpus().right.values())
    taken = refused = 0
    for _ in range(200):
        try:
            target.read(target.mutate(rng, rng.choice(small), small), tmp_path)
            taken += 1
        except Exception:
            refused += 1
    assert taken
    assert refused or target.tolerant


def test_what_earlier_runs_found_is_in_the_corpus():
    kept = {f"{path.parent.name}/{path.name}" for path in (HERE / "corpus").rglob("*")}
    assert kept >= {
        "inspect/tag of escape sequences",
        "lock/line break in the name of a torch",
        "lock/line separator in a platform",
        "sdist/long name of 4 GiB",
    }
    assert all(set(TARGETS[name].corpus().others) for name in ("inspect", "lock", "sdist"))


if __name__ == "__main__":
    print(json.dumps(faults_of_readers()))
