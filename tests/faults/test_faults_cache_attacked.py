"""Three processes of two users attack the cache and the libraries of a third: nothing of them runs.

`pytest tests/faults/test_faults_cache_attacked.py --seconds 300` attacks for five minutes.
"""

import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from cache_attack import ATTACKERS, GOOD, HOSTILE, Places, attack

from jitmaker import Told, wanted
from torchwheel.smoke import trial_environment
from torchwheel_runtime.claims import Part
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import private_folder, sha256
from torchwheel_runtime.jit.make import make_library
from torchwheel_runtime.loadable import open_loadable
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.toolkits import find_toolkits
from torchwheel_runtime.runtime.universal import verify_part
from torchwheel_runtime.toolkit.cache import make_once

pytestmark = pytest.mark.integration

SHORT = 4.0
TOOLKIT = f"toolkits/cuda-13.0-{probe.platform_tag()}-0123456789abcdef"
REQUIRES = ("pytest",)
KEY = wanted().key
TARGETS = (
    TOOLKIT,
    f"smoke/{trial_environment.base_folder_name(REQUIRES)}",
    f"jit/{KEY.target}/{KEY.content}",
)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def places():
    if os.geteuid():
        pytest.skip("only root can become other users")
    with tempfile.TemporaryDirectory() as name:
        made = Places(Path(name))
        made.make()
        yield made
        # Attackers fill it with a folder for each of their acts: shutil takes minutes for them.
        subprocess.run(["rm", "-rf", "--one-file-system", name], check=False)
        Path(name).mkdir(exist_ok=True)


class Victim:
    """Uses everything that is attacked, and counts what it used and what it refused."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.counts: Counter[str] = Counter()

    def use_all(self) -> None:
        for cache in self.places.caches:
            self.count("toolkit", lambda cache=cache: self.use_toolkit(cache))
            self.count("discovery", lambda cache=cache: self.discover(cache))
            self.count("environment", lambda cache=cache: self.use_environment(cache))
            self.count("JIT library", lambda cache=cache: self.use_jit(cache))
        self.count("installed library", self.use_part)

    def count(self, name: str, use) -> None:
        try:
            outcome = use()
        except TorchwheelError as error:
            outcome = "refused in several lines" if "\n" in str(error) else "refused"
        self.counts[f"{name}: {outcome}"] += 1

    def use_toolkit(self, cache: Path) -> str:
        def make(folder: Path) -> None:
            (folder / "bin").mkdir()
            (folder / "bin" / "nvcc").write_text("#!/bin/sh\necho good\n")
            (folder / "bin" / "nvcc").chmod(0o755)

        make_once(cache / TOOLKIT, make, Told(), doing="", busy="")
        nvcc = cache / TOOLKIT / "bin" / "nvcc"
        done = subprocess.run([nvcc], capture_output=True, text=True, check=True)
        assert done.stdout == "good\n"
        return "used"

    def discover(self, cache: Path) -> str:
        found = [
            kit for kit in find_toolkits("cuda", {"PATH": ""}, (), cache) if "cache" in kit.where
        ]
        return "refused" if any("others" in str(kit.problem) for kit in found) else "used"

    def use_environment(self, cache: Path) -> str:
        base = trial_environment.base_environment(cache, REQUIRES, Told())
        subprocess.run([base / "bin" / "python", "-c", "pass"], check=True)
        return "used"

    def use_jit(self, cache: Path) -> str:
        def build(source: Path, output: Path) -> Path:
            return Path(shutil.copyfile(self.places.good, output / "ext_scale.so"))

        library = make_library(cache / "jit", wanted(), build, Told())
        assert library.load().answer() == GOOD
        return "private" if library.path.is_relative_to(private_folder()) else "used"

    def use_part(self) -> str:
        part = Part("kernels", "one", "pkg/one.so", sha256(self.places.good))
        library, _ = verify_part(part, self.places.part.parent)
        time.sleep(0.002)  # time to swap it
        assert library.load().answer() == GOOD
        return "used"


def victim(places: Places, rounds: int, pipe) -> None:
    """Some rounds in a process of their own, as a library stays loaded to a process's end."""
    trial_environment.pip_install = lambda *_, **__: None
    user = Victim(places)
    for _ in range(rounds):
        user.use_all()
    pipe.send(user.counts)


def run_victim(places: Places, rounds: int) -> Counter[str]:
    mine, its = FORK.Pipe(duplex=False)
    process = FORK.Process(target=victim, args=(places, rounds, its), daemon=True)
    process.start()
    process.join(120)
    assert process.exitcode == 0, "the victim hangs or fails"
    return mine.recv()


def test_what_is_planted_tells_who_runs_it(places):
    """Without this, a log without a line would prove nothing."""
    process = FORK.Process(target=lambda: open_loadable(places.hostile).load())
    process.start()
    process.join()
    assert places.log.read_text() == "a library as user 0\n"
    assert open_loadable(places.good).load().answer() != HOSTILE


@pytest.mark.nightly
def test_nothing_of_the_attackers_is_loaded_or_run(places, request, chance, keep, capsys):
    seconds = request.config.getoption("--seconds", None) or SHORT
    seed = chance.own_seed
    until = time.monotonic() + seconds
    attackers = [
        FORK.Process(target=attack, args=(places, TARGETS, user, seed + number, until), daemon=True)
        for number, user in enumerate(ATTACKERS)
    ]
    for attacker in attackers:
        attacker.start()
    counts: Counter[str] = Counter()
    while time.monotonic() < until:
        counts += run_victim(places, rounds=2)
        assert places.log.read_text() == ""
        places.open_loose()
        counts += run_victim(places, rounds=1)
        assert places.log.read_text() == ""
        places.restore()
    for attacker in attackers:
        attacker.join()
        assert attacker.exitcode == 0
    with capsys.disabled():
        print(f"\n{seconds:.0f} s, --seed {seed}: {sum(counts.values())} uses")
        for name, count in sorted(counts.items()):
            print(f"  {count:6} {name}")
    # Each use that ran or loaded something of theirs has ended the test above.
    tally = {"seconds": seconds, "attackers": len(ATTACKERS), "uses": sum(counts.values())}
    keep("attacks", "cache", {**tally, "of_theirs": 0, "outcomes": dict(sorted(counts.items()))})
    assert not [name for name in counts if "several lines" in name]
    for name in ("toolkit: used", "toolkit: refused", "JIT library: used", "JIT library: private"):
        assert counts[name], f"no {name}: the attack or the victim does not work"
