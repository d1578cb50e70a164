"""Kills a run at random moments, and looks at what it leaves and at what the next run makes of it.

A `Victim` is a run that brings a folder from one state to another, back and forth. After each kill
a reader must see the old state or the new one. The next run must succeed, give the bytes that a
run without a kill gives, and leave nothing but them.
"""

import contextlib
import dataclasses
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# And the hash of what has times in it: the catalogue.
_TIMES = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)?|[0-9a-f]{64}  catalogue\.json")
_LEFT = (".temporary", ".previous", "making-", "torchwheel-", "pip-", "tmp")


@dataclasses.dataclass(frozen=True)
class Victim:
    """A run that is killed.

    Attributes:
        folder: everything that it reads and writes lies below, temporary files too.
        command: the command of state 0 or 1.
        prepare: gives the run the inputs of state 0 or 1.
        parts: what readers see, by name; each is old or new by itself, and never half.
        may_miss: names of `parts` that are away for a moment.
        alone: kill the run without its children, every fourth time.
    """

    folder: Path
    command: Callable[[int], Sequence[str]]
    prepare: Callable[[int], None]
    parts: Callable[[], dict[str, str]]
    may_miss: re.Pattern[str] = re.compile(r"(?!)")
    alone: bool = True

    def start(self, state: int) -> "subprocess.Popen[str]":
        """Begin a run, in a process group of its own."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        return subprocess.Popen(
            [*self.command(state)],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, state: int) -> tuple[dict[str, str], float]:
        """What readers see after a run that nobody kills, and its seconds."""
        self.prepare(state)
        begun = time.monotonic()
        process = self.start(state)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said
        return self.parts(), time.monotonic() - begun


@dataclasses.dataclass
class Tally:
    """What was seen.

    Attributes:
        kills: runs that were killed.
        finished: runs that ended before their kill, which do not count as kills.
        left: kills that left temporary files, which the next run removed.
        between: kills after which readers saw something between the two states.
        seconds: how long it all took.
    """

    kills: int = 0
    finished: int = 0
    left: int = 0
    between: int = 0
    seconds: float = 0.0


def kill_at_random(
    victim: Victim, kills: int, chance: random.Random, seconds: float = 86400
) -> Tally:
    """Kill runs until there are so many kills, or so many seconds have passed."""
    tally, begun = Tally(), time.monotonic()
    whole, length = [], 0.0
    for state in (0, 1):
        parts, took = victim.run(state)
        assert leftovers(victim.folder) == []
        whole.append(parts)
        length = took
    # From here on every run changes something.
    assert whole[0] != whole[1]
    while tally.kills < kills and time.monotonic() - begun < seconds:
        state = 1 - state
        victim.prepare(state)
        process = victim.start(state)
        moment = chance.uniform(0, length)
        time.sleep(moment)
        tally.finished += process.poll() is not None
        tally.kills += process.poll() is None
        alone = victim.alone and tally.kills % 4 == 3
        with contextlib.suppress(ProcessLookupError):
            (os.kill if alone else os.killpg)(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        wait_for_group(process.pid)
        where = f"killed after {moment:.3f} s, kill {tally.kills}: {said}"
        tally.left += leftovers(victim.folder) != []
        seen = victim.parts()
        tally.between += seen not in whole
        for name in whole[0].keys() | whole[1].keys() | seen.keys():
            known = {parts.get(name) for parts in whole}
            missing_now = name not in seen and victim.may_miss.search(name)
            assert seen.get(name) in known or missing_now, f"{name} is half-done; {where}"
        after, took = victim.run(state)
        # The machine may be less busy than it was. A run that finds much done says little of that.
        length = max(took, 0.8 * length)
        assert after == whole[state], where
        left = leftovers(victim.folder)
        assert left == [], f"{left}; {where}"
    tally.seconds = round(time.monotonic() - begun, 1)
    return tally


def wait_for_group(group: int) -> None:
    """Wait for the last process of a group: those of a killed run end a moment later."""
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.01)


def leftovers(folder: Path) -> list[str]:
    """Files and folders below `folder` that only a run at work should have."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name.endswith(_LEFT[:2])
        or (path.name.startswith(_LEFT[2:]) and path.name != "temporary")
        or path.parent == folder / "temporary"
    ]


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names, whatever the time is."""
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        found.update(f"{file.relative_to(path)}\n".encode())
        data = file.read_bytes()
        found.update(data if file.suffix == ".whl" else _TIMES.sub(b"", data))
    return found.hexdigest()


def torchwheel(*arguments: object) -> list[str]:
    """A command line of torchwheel."""
    return [sys.executable, "-m", "torchwheel", *map(str, arguments)]
