"""The `ninja` of a divided build: where it starts, and the objects that it keeps and takes."""

import re
import shutil
import sys
from pathlib import Path

import ninja
import pytest

from torchwheel.compilers import ninja_program
from torchwheel.compilers.compile_steps import ExpectedObject
from torchwheel.toolkit.toolkit_home import write_script
from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.shards import Shard

pytestmark = pytest.mark.integration

REAL = Path(ninja.BIN_DIR, "ninja")


def command(folder: Path) -> list[str]:
    return ninja_program.command("plan", folder, REAL, Path("g++"), [], Shard())


@pytest.fixture
def editable(monkeypatch):
    """The path of an editable installation: an import hook finds torchwheel, no folder does."""
    folders = [name for name in sys.path if not Path(name, "torchwheel", "__init__.py").exists()]
    monkeypatch.setattr(sys, "path", folders)


@pytest.mark.usefixtures("editable")
def test_it_starts_from_an_editable_installation(tmp_path):
    done = process.run([*command(tmp_path), "--version"])
    assert done.status == 0, done.errors
    assert done.output == process.run([REAL, "--version"]).output


def test_it_imports_nothing_of_the_folders_of_the_user_and_the_project(tmp_path, monkeypatch):
    (tmp_path / "dataclasses.py").write_text("raise SystemExit('another module')")
    monkeypatch.syspath_prepend(tmp_path)
    done = process.run([*command(tmp_path), "--version"], cwd=tmp_path)
    assert done.status == 0, done.errors


def test_one_that_does_not_start_stops_the_build(tmp_path):
    program = write_script(tmp_path / "ninja", command(tmp_path))
    ninja_program.check_starts(program, sys.executable)
    lost = [word.replace(ninja_program.__name__, "torchwheel.lost") for word in command(tmp_path)]
    with pytest.raises(TorchwheelError, match=r"^the ninja of a .* does not start: ModuleNotFound"):
        ninja_program.check_starts(write_script(tmp_path / "ninja", lost), sys.executable)


GRAPH = """\
rule compile
  command = echo $out >> calls; g++ -c $in -o $out
rule link
  command = ld -r $in -o $out
build one.o: compile one.cpp
build two.o: compile two.cpp
build linked.o: link one.o two.o
"""


@pytest.fixture
def project(tmp_path):
    """A folder with the graph that torch would write: two steps, and a link of their objects."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "build.ninja").write_text(GRAPH)
    for name in ("one", "two"):
        (folder / f"{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n")
    return folder


@pytest.fixture
def make(tmp_path, project):
    """Makes the graph as a job would; returns the program's result and the records."""

    def run(work, number=1, expected=None, requirements="pybind11-3.0.dist-info"):
        folder = tmp_path / f"{work}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / ninja_program.REQUIREMENTS).write_text(requirements)
        if expected:
            ninja_program.write_compiled(expected, folder)
        for path in project.glob("*.o"):
            path.unlink()
        (project / "calls").unlink(missing_ok=True)
        shard = Shard(number, 2)
        words = ninja_program.command(work, folder, REAL, Path("g++"), [], shard, keep=True)
        done = process.run([*words, "-v"], cwd=project)
        return done, {record.name: record for record in ninja_program.read_records(folder)}, folder

    return run


@pytest.fixture
def expected(make):
    """What two shards compiled."""
    found = {}
    for number in (1, 2):
        done, records, folder = make("shard", number)
        assert done.status == 0, done.errors
        for name, record in records.items():
            if record.sha256:
                file = folder / ninja_program.object_file(record.sha256)
                found[name] = ExpectedObject(
                    record.sha256, f"shard {number}/2", str(file), record.command
                )
    return found


def test_objects_of_other_jobs_are_linked_and_none_is_compiled(make, expected, project):
    assert sorted(expected) == ["0/one.o", "0/two.o"]
    done, records, _ = make("link", expected=expected)
    assert done.status == 0, done.errors
    assert "torchwheel: 2 objects of other jobs, none compiled" in done.output
    assert not (project / "calls").exists()
    assert {name: record.sha256 for name, record in records.items()} == {
        name: one.sha256 for name, one in expected.items()
    }
    symbols = process.run(["nm", project / "linked.o"]).output
    assert "_Z3onev" in symbols
    assert "_Z3twov" in symbols


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("call", r"0/one\.o: expected the call and the build requirements that shard 1/2 compiled"),
        ("requirements", r"0/one\.o: expected the call and the build requirements that shard 1/2"),
        ("object", r"0/two\.o: expected the object that shard 2/2 compiled, sha256 \w{12}, found"),
        ("step", r"0/two\.o: expected it among the steps of the shards, found it in none"),
    ],
)
def test_what_is_not_as_a_shard_compiled_it_is_not_linked(make, expected, project, change, says):
    requirements = "pybind11-3.0.dist-info"
    if change == "call":
        graph = (project / "build.ninja").read_text()
        (project / "build.ninja").write_text(graph.replace("g++ -c", "g++ -O1 -c"))
    elif change == "requirements":
        requirements = "pybind11-3.1.dist-info"
    elif change == "object":
        Path(expected["0/two.o"].file).write_bytes(b"other")
    else:
        del expected["0/two.o"]
    done, _, _ = make("link", expected=expected, requirements=requirements)
    assert done.status == 1
    assert re.search(says, done.errors)
    assert not (project / "calls").exists()
