"""No program that torchwheel starts runs, imports or obeys a file of the working folder."""

import re
import sys
from pathlib import Path

import pytest

from torchwheel.image.engine import reap_containers
from torchwheel.install.environment import TargetEnvironment, find_environment
from torchwheel.install.installer import Installer, find_installer, install_others
from torchwheel.interpreters import find_interpreter, running_interpreter
from torchwheel.pipeline.repair import repair
from torchwheel.smoke.trial_environment import _make_venv
from torchwheel_runtime.doctor.importing import import_package
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.pip import run_pip

PKG = Path(__file__).parents[2] / "pkg"
PLANTED = (
    *("auditwheel", "cibuildwheel", "email", "json", "pip", "platform", "runpy", "subprocess"),
    *("torch", "torchwheel", "venv"),
)
PYTHON = Path(sys.executable)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A working folder with such modules, in which each that runs leaves a file; that file."""
    folder, mark = tmp_path / "here", tmp_path / "ran"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r} + ' ')\n")
    monkeypatch.chdir(folder)
    return mark


class NoEngine:
    name, environ = "podman", {"PATH": "/none"}

    def remove_containers(self, run):
        pass


def reap(_):
    with reap_containers(NoEngine(), "run"):
        pass


def pip_of_environment(folder):
    program = find_installer(environment(folder, pip="1"))
    with pytest.raises(TorchwheelError, match="must give at least one requirement"):
        install_others(program, [], environment(folder), folder)


def repair_one(folder):
    with pytest.raises(TorchwheelError, match=r"^auditwheel repair no-1-py3"):
        repair(Path("no-1-py3-none-any.whl"), folder)


def environment(folder, program=PYTHON, **installed):
    here = {"python": "3.12", "platform": "linux", "glibc": None, "implementation": "CPython"}
    return TargetEnvironment(program=program, tags=(), installed=installed, **here)


def import_one(folder):
    (folder / "odd.py").write_text("import email.parser, json, platform, subprocess\n")
    found = import_package("odd")
    assert (found.how, found.missing_modules, found.file) == ("imported", (), folder / "odd.py")


CALLS = {
    "pip": lambda _: run_pip(["--version"], "asking pip"),
    "other-pip": lambda _: run_pip(["--version"], "asking pip", python=PYTHON),
    "install": pip_of_environment,
    "environment": lambda _: find_environment(str(PYTHON)),
    "python": lambda _: find_interpreter(sys.executable),
    "venv": lambda folder: _make_venv(folder / "venv", running_interpreter()),
    "repair": repair_one,
    "reap": reap,
    "import": import_one,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_module_of_the_working_folder_does_not_run(ran, tmp_path, monkeypatch, call):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    call(tmp_path)
    assert not ran.exists(), ran.read_text()


def test_what_is_in_the_way_of_a_package_is_named_and_not_run(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "pip.py").touch()
    found = import_package("pip")
    assert (found.how, found.file) == ("imported", Path.cwd() / "pip.py")
    assert import_package("nothing_of_the_kind").how == "not found"
    (Path.cwd() / "nothing_of_the_kind.py").write_text("import pip")
    assert import_package("nothing_of_the_kind").how == "not found"
    assert not ran.exists(), ran.read_text()


def test_uv_runs_elsewhere_and_relative_places_of_its_variables_stay(ran, tmp_path, monkeypatch):
    uv, told = tmp_path / "uv", tmp_path / "told"
    script = '#!/bin/sh\npwd >{0}; echo "$UV_FIND_LINKS|$UV_INDEX|$UV_CONFIG_FILE" >>{0}\n'
    uv.write_text(script.format(told))
    uv.chmod(0o755)
    monkeypatch.setenv("UV_FIND_LINKS", "x,https://host/y")
    monkeypatch.setenv("UV_INDEX", "own=./z file:///w https://host/?a=b")
    monkeypatch.setenv("UV_CONFIG_FILE", "my uv.toml")
    install_others(Installer("uv", (str(uv),)), [], environment(tmp_path), tmp_path)
    here = Path.cwd()
    assert told.read_text().splitlines() == [
        "/",
        f"{here}/x,https://host/y|own={here}/z file:///w https://host/?a=b|{here}/my uv.toml",
    ]


def test_a_python_of_a_relative_path_is_found_from_elsewhere(ran, monkeypatch):
    here = environment(Path(), Path("venv/bin/python"))
    command = find_installer(here, "uv").command
    assert command[-1] == f"{Path.cwd()}/venv/bin/python"
    assert Path(command[0]).is_absolute()


def test_no_command_has_python_run_a_module_by_its_name():
    commands = [
        f"{path.relative_to(PKG)}: {line.strip()}"
        for path in PKG.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r'executable, "-m"|python, "-m"|"-m", "', line)
    ]
    assert commands == []
