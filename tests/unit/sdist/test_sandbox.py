"""The sandbox's command, its variables, and what is said where there is none."""

import dataclasses
import itertools
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from programmaker import program
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.sdist.confined import compiler_cache
from torchwheel.sdist.request import SdistRequest
from torchwheel.sdist.sandbox import (
    Folders,
    Sandbox,
    find_sandbox,
    parse_variables,
    temporary_files_in,
)
from torchwheel.steps.compiler_cache import parse_cache


def options(command: list[str], option: str) -> list[str]:
    """The first value of each `option` of a command."""
    return [value for name, value in itertools.pairwise(command) if name == option]


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {"PATH": f"/usr/bin:{tmp_path}/bin", "GH_TOKEN": "secret"})
    (tmp_path / "bin").mkdir()
    return Sandbox("/usr/bin/bwrap", tmp_path / "scratch", frozenset({"PATH"}))


def test_it_has_no_network_no_rights_and_its_own_folders_alone(tmp_path, sandbox):
    cache, own = tmp_path / "cache", tmp_path / "cache/build/own"
    own.mkdir(parents=True)
    folders = Folders(read=[cache, own], write=[own / "built"], hidden=[cache / "build"])
    command = sandbox.command(Path("/usr/bin/python3"), folders, (), {"SCCACHE_DIR": "/x"})
    assert command[0] == "/usr/bin/bwrap"
    assert command[-2:] == ["--", "/usr/bin/python3"]
    for option in ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"):
        assert option in command
    assert "--share-net" not in command
    assert options(command, "--cap-drop") == ["ALL"]
    scratch = tmp_path / "scratch"
    expected = [own / "built", scratch / "home", scratch / "temporary"]
    assert options(command, "--bind") == [str(path) for path in expected]
    read = options(command, "--ro-bind")
    assert {str(cache), str(own), str(tmp_path / "bin")} <= set(read)
    assert "/" not in read
    assert str(Path.home()) not in read
    # The other builds in the cache are hidden, and this one is shown again.
    assert options(command, "--tmpfs") == ["/tmp", str(cache / "build")]  # noqa: S108
    assert command.index(str(cache / "build")) < len(command) - command[::-1].index(str(own)) - 1
    assert "GH_TOKEN" in options(command, "--unsetenv")
    assert "PATH" not in options(command, "--unsetenv")
    assert {"HOME", "TMPDIR", "SCCACHE_DIR"} == set(options(command, "--setenv"))


def test_a_path_that_names_the_home_does_not_show_it(tmp_path, sandbox, monkeypatch):
    home = tmp_path / "homes" / "me"
    (home / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    entries = [home, home.parent, home / "bin" / "..", tmp_path / "link", tmp_path, home / "bin"]
    monkeypatch.setitem(os.environ, "HOME", str(home))
    monkeypatch.setitem(os.environ, "PATH", os.pathsep.join(map(str, entries)))
    command = sandbox.command(Path("/usr/bin/python3"), Folders([], []), (), {})
    shown = [path for path in options(command, "--ro-bind") if path.startswith(str(tmp_path))]
    assert shown == [str(home / "bin")]


def test_the_server_of_a_compiler_cache_ends_before_the_sandbox(tmp_path, sandbox):
    launcher = program(tmp_path / "sccache", f'echo "$@" >>{tmp_path}/asked')
    command = sandbox.command(Path("/bin/sh"), Folders([], []), (str(launcher),), {})
    inside = command[command.index("--") + 1 :]
    assert subprocess.run([*inside, "-c", "exit 7"], check=False).returncode == 7
    assert (tmp_path / "asked").read_text() == "--stop-server\n"


def test_a_project_has_a_compiler_cache_of_its_own(tmp_path):
    request = SdistRequest(tmp_path / "one", tmp_path)
    found = compiler_cache(request, tmp_path)
    assert found.folder == tmp_path / "build" / f"sccache-{request.cache_key()}"
    assert found.variables["SCCACHE_DIR"] == str(found.folder)
    other = dataclasses.replace(request, source=tmp_path / "other")
    assert compiler_cache(other, tmp_path).folder != found.folder
    named = dataclasses.replace(request, cache=parse_cache("redis://10.0.0.5:6379"))
    assert compiler_cache(named, tmp_path) == named.cache


def test_without_bwrap_a_line_says_so(tmp_path):
    environ = {"PATH": str(tmp_path)}
    reason = "bwrap is not on the PATH; install bubblewrap"
    assert find_sandbox("auto", tmp_path, (), print, environ) == reason
    with pytest.raises(TorchwheelError, match=f"expected a sandbox, found none: {reason}"):
        find_sandbox("require", tmp_path, (), print, environ)
    assert find_sandbox("off", tmp_path, (), print, environ) == "--sandbox off"


def test_a_bwrap_that_may_not_make_one_is_none(tmp_path):
    program(tmp_path / "bin/bwrap", "echo 'bwrap: No permissions' >&2; exit 1")
    found = find_sandbox("auto", tmp_path, (), print, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert found == "bwrap does not work here: bwrap: No permissions"


def test_a_planted_bwrap_makes_no_sandbox(tmp_path):
    program(tmp_path / "planted/bwrap", "exit 0")
    (tmp_path / "planted").chmod(0o777)
    environ = {"PATH": f"{tmp_path}/planted"}
    line = f"{tmp_path}/planted/bwrap: is not used: {tmp_path}/planted: others may write to it"
    with pytest.raises(TorchwheelError, match=f"found none: {line}"):
        find_sandbox("require", tmp_path, (), print, environ)
    program(tmp_path / "bin/bwrap", "exit 0")
    said = []
    environ["PATH"] += f":{tmp_path}/bin"
    found = find_sandbox("require", tmp_path, (), said.append, environ)
    assert found.bwrap == f"{tmp_path}/bin/bwrap"
    assert [text.startswith(line) for text in said] == [True]


def test_a_build_gets_the_usual_variables_and_those_that_are_named(tmp_path):
    program(tmp_path / "bin/bwrap", "exit 0")
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CFLAGS": "-O1", "LC_ALL": "C.UTF-8"}
    secrets = {
        "GH_TOKEN": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "SSH_AUTH_SOCK": "",
        "PIP_INDEX_URL": "",
    }
    found = find_sandbox("auto", tmp_path, ["MY_FLAG"], print, {**environ, **secrets})
    assert isinstance(found, Sandbox)
    assert {"MY_FLAG", *environ} <= found.variables
    assert not found.variables & secrets.keys()


def test_variables_are_named_on_the_command_line():
    environ = {"SET": "1"}
    assert parse_variables(["A=b=c", "SET", "E="], environ) == {"A": "b=c", "SET": "1", "E": ""}
    for text in ("UNSET", "=x", "a b=c", ""):
        with pytest.raises(UsageError, match=r"--env '.*': expected NAME=VALUE"):
            parse_variables([text], environ)


def test_temporary_files_lie_where_the_sandbox_sees_them(tmp_path):
    import tempfile

    before = tempfile.gettempdir()
    with temporary_files_in(tmp_path / "inside"), tempfile.TemporaryDirectory() as folder:
        assert Path(folder).parent == tmp_path / "inside"
    with temporary_files_in(None):
        assert tempfile.gettempdir() == before
    assert tempfile.gettempdir() == before


def test_the_command_is_a_script_that_any_shell_reads(tmp_path, sandbox):
    command = sandbox.command(Path("/bin/sh"), Folders([tmp_path], []), (), {"A": "it's"})
    assert shlex.split(shlex.join(command)) == command
