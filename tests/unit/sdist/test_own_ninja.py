"""The `ninja` of a divided build starts wherever torchwheel is installed."""

import sys
from pathlib import Path

import ninja
import pytest

from torchwheel import process
from torchwheel.errors import TorchwheelError
from torchwheel.shards import Shard
from torchwheel.steps import own_ninja
from torchwheel.toolkit.cuda_home import write_script

REAL = Path(ninja.BIN_DIR, "ninja")


def command(folder: Path) -> list[str]:
    return own_ninja.command("plan", folder, REAL, Path("g++"), [], Shard(), None)


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
    own_ninja.check_starts(program, sys.executable)
    lost = [word.replace(own_ninja.__name__, "torchwheel.lost") for word in command(tmp_path)]
    with pytest.raises(TorchwheelError, match=r"^the ninja of a .* does not start: ModuleNotFound"):
        own_ninja.check_starts(write_script(tmp_path / "ninja", lost), sys.executable)
