"""wheels, assemble, the index and the JIT cache, killed at random moments.

`nox -s faults -- 200` is the nightly form.
"""

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest
from killing import Victim, digest, kill_at_random, torchwheel

import jitmaker
from torchwheel_runtime.jit.lookup import find_library
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration


@pytest.fixture
def killed(kills, chance, seconds, keep):
    """Kills a victim and keeps the tally."""

    def kill(name: str, victim: Victim, usual: int):
        tally = kill_at_random(victim, kills(usual), chance, seconds)
        keep("kills", name, dataclasses.asdict(tally))
        assert tally.kills
        return tally

    return kill


def wheels_in(dist: Path) -> dict[str, str]:
    """The wheels where pip looks, and the index as a whole."""
    found = {path.name: digest(path) for path in dist.glob("*.whl")}
    return found | {name: digest(dist / name) for name in ("index",) if (dist / name).exists()}


def test_wheels(killed, projects, tmp_path):
    project = tmp_path / "small"
    shutil.copytree(projects[0], project)
    source = Path("small", "__init__.py")
    victim = Victim(
        folder=tmp_path,
        command=lambda _: torchwheel("wheels", "pure", *in_project(project)),
        prepare=lambda state: shutil.copyfile(projects[state] / source, project / source),
        parts=lambda: wheels_in(project / "dist"),
        # The old wheel goes before the new one comes.
        may_miss=re.compile(r"\.whl$"),
    )
    killed("wheels", victim, 1)


def in_project(project: Path) -> list[str]:
    return ["--matrix", str(project / "matrix.yaml"), "--dist", str(project / "dist")]


@pytest.mark.nightly
def test_assemble(killed, projects, tmp_path, torchwheel_run):
    for project in projects:
        torchwheel_run("wheels", "pure", *in_project(project))
    out = tmp_path / "release"

    def command(state: int) -> list[str]:
        project = projects[state]
        options = ("--matrix", project / "matrix.yaml", "--selection", "pure", "--out", out)
        return torchwheel("assemble", project / "dist", *options)

    victim = Victim(
        folder=tmp_path,
        command=command,
        prepare=lambda _: None,
        parts=lambda: {"release": digest(out)} if out.exists() else {},
    )
    killed("assemble", victim, 1)


INDEX = """
import sys
from pathlib import Path
from torchwheel.index.writer import IndexedWheel, build_index

wheels = sorted(Path(sys.argv[1]).glob("*.whl"))
for number in range(int(sys.argv[3])):
    build_index([IndexedWheel(wheel, ("cpu",)) for wheel in wheels], Path(sys.argv[2]))
"""


@pytest.mark.parametrize("exchange", ["in one step", "in two steps"])
def test_index(killed, tmp_path, exchange):
    """Where names cannot be exchanged, the index is away until the next run."""
    for state in range(2):
        for number in range(20):
            make_wheel(tmp_path / f"wheels{state}", version=f"{state + 1}.{number}")
    out = tmp_path / "index"
    code = INDEX
    if exchange == "in two steps":
        code = (
            "from torchwheel_runtime import files\nfiles._exchange = lambda one, other: False\n"
            + INDEX
        )
    victim = Victim(
        folder=tmp_path,
        command=lambda state: (
            [sys.executable, "-c", code, str(tmp_path / f"wheels{state}"), str(out), "3"]
        ),
        prepare=lambda _: None,
        parts=lambda: {"index": digest(out)} if out.exists() else {},
        may_miss=re.compile("index" if exchange == "in two steps" else r"(?!)"),
    )
    killed(f"index, {exchange}", victim, 1)


def test_jit(killed, tmp_path):
    folder, size = tmp_path / "jit", 1 << 20
    texts = ("one", "two")
    (tmp_path / "go").write_text("\n")

    def parts() -> dict[str, str]:
        """A library that is found is whole."""
        found = {}
        for text in texts:
            problems: list[str] = []
            library = find_library(folder, jitmaker.wanted(text).key, problems.append)
            assert not problems
            if library:
                assert library.read() == jitmaker.library_of(text, size)
                found[text] = digest(library.path)
        return found

    def prepare(state: int) -> None:
        for path in folder.glob("*/[0-9a-f]*"):
            if path.name != "running":
                shutil.rmtree(path)

    def command(state: int) -> list[str]:
        maker = [sys.executable, jitmaker.__file__, str(folder), texts[state], str(size), "0.1"]
        return ["sh", "-c", 'exec "$@" < go', "sh", *maker]

    killed("jit", Victim(tmp_path, command, prepare, parts, re.compile(".")), 3)
