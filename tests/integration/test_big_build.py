"""`torchwheel build` in parts: real torch, setup.py, ninja, g++, sccache and its cluster."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from torchwheel.compilers.cluster import TOKEN, check_cluster
from torchwheel.compilers.compiler_cache import (
    CacheUse,
    SchedulerAccess,
    folder_cache,
    own_server,
    wait_for_writes,
)
from torchwheel_runtime.errors import TorchwheelError
from waiting import wait_for

_T = TypeVar("_T")

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
# What the suite's smoke tests run with, so that nothing more is installed for these.
CPU = ("--cpu", "--torch", "2.13.0")
STEPS = ["0/many/module.o", "0/many/part.o", "0/many/slow.o", "1/many/second.o"]


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a call that failed as it should, without a traceback."""
    assert done.returncode, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("torchwheel: ")]
    return line


def compilers_of(source: str) -> list[psutil.Process]:
    """The compilers that read a copy of a source, whoever started them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "cc1plus" and any(w.endswith(source) for w in process.cmdline()):
                found.append(process)
    return found


def runs(process: psutil.Process) -> bool:
    """Whether a process goes on; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def servers_of(objects: Path) -> list[psutil.Process]:
    """The servers of sccache whose cache is this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            of_it = process.environ().get("SCCACHE_DIR") == str(objects)
            if process.name() == "sccache" and of_it:
                found.append(process)
    return found


@pytest.fixture(scope="module")
def compiled(made_once, cache):
    """A folder with the project, the cache that two shards filled, and their lists."""

    def make(folder: Path) -> None:
        shutil.copytree(HERE / "many", folder / "many")
        for number in (1, 2):
            command = [sys.executable, "-m", "torchwheel", "build", "many", *CPU]
            command += ["--cache", "objects", "--shard", f"{number}/2"]
            environ = {**os.environ, "TORCHWHEEL_CACHE": str(cache)}
            subprocess.run(command, cwd=folder, env=environ, check=True)

    return made_once("shards", make)


@pytest.mark.nightly
def test_a_plan_lists_the_steps_and_what_pythons_share(compiled, torchwheel):
    done = torchwheel("build", "many", *CPU, "--plan", "2", cwd=compiled, status=0)
    head, *rows = done.stdout.partition("\n\n")[0].splitlines()
    assert head.split() == ["shard", "python", "step"]
    assert [row.split() for row in rows] == [
        ["1/2", "Python.h", STEPS[0]],
        ["1/2", "any", STEPS[2]],
        ["2/2", "any", STEPS[1]],
        ["2/2", "Python.h", STEPS[3]],
    ]
    assert "4 steps in 2 shards, 2 without Python.h" in done.stdout
    assert not list(compiled.glob("**/*.whl"))


@pytest.mark.nightly
def test_one_job_links_what_the_shards_compiled(compiled, tmp_path, torchwheel):
    lists = [json.loads(file.read_text()) for file in sorted(compiled.glob("dist/shards/*.json"))]
    assert [sorted(one["objects"]) for one in lists] == [STEPS[::2], STEPS[1::2]]
    assert all(one["steps"] == STEPS and one["hits"] == 0 for one in lists)
    call = ("build", "many", *CPU, "--cache", "objects", "--dist", tmp_path)
    done = torchwheel(*call, "--from-shards", "dist/shards", cwd=compiled, status=0)
    (record,) = tmp_path.glob("*.whl.json")
    assert json.loads(record.read_text())["cache"] == {"hits": 4, "misses": 0, "failed": 0}
    assert "cache 4 objects were there, 0 were compiled" in done.stdout
    assert len(list(tmp_path.glob("*.whl"))) == 1


@pytest.mark.nightly
def test_a_lost_shard_and_a_cache_that_lies_publish_nothing(compiled, tmp_path, torchwheel):
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    shards = tmp_path / "dist" / "shards"
    call = ("build", compiled / "many", *CPU, "--cache", "objects", "--from-shards", shards)
    # sccache believes its entries: each is given the content of another.
    entries = sorted(path for path in (tmp_path / "objects").glob("?/?/*") if path.is_file())
    contents = [path.read_bytes() for path in entries]
    for path, content in zip(entries, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    line = one_line(torchwheel(*call, cwd=tmp_path))
    assert re.search(
        r"0/many/module\.o: expected the object that shard 1/2 compiled, sha256 \w{12}, found "
        r"\w{12}: the compiler cache gave another one, or had lost it; ",
        line,
    )
    next(shards.glob("*-1of2.json")).unlink()
    line = one_line(torchwheel(*call, cwd=tmp_path))
    assert line.endswith("1/2 is lost; run `torchwheel build … --shard 1/2` again")
    assert not list(tmp_path.glob("**/*.whl"))


@pytest.fixture
def project(tmp_path):
    """A project of its own, whose compilers are told from those of other tests."""
    return Path(shutil.copytree(HERE / "many", tmp_path / "many"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


STATUS = "/api/v1/scheduler/status"
SCHEDULER = """\
public_addr = "{address}"
client_auth = {{type = "token", token = "the token"}}
server_auth = {{type = "jwt_hs256", secret_key = "{key}"}}
"""
SERVER = """\
public_addr = "{address}"
scheduler_url = "{scheduler}"
cache_dir = "{folder}/toolchains"
builder = {{type = "overlay", build_dir = "{folder}/build", bwrap_path = "{bwrap}"}}
scheduler_auth = {{type = "jwt_token", token = "{token}"}}
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """The scheduler's URL, and two build servers by their addresses."""
    program, bwrap = shutil.which("sccache-dist"), shutil.which("bwrap")
    if os.geteuid() or not program or not bwrap:
        pytest.skip("a build server is root's, and needs bwrap")
    monkeypatch.setenv(TOKEN, "the token")
    folder = tmp_path / "cluster"

    def printed(*words: str) -> str:
        return subprocess.check_output([program, "auth", *words], text=True).strip()

    with contextlib.ExitStack() as stack:

        def start(kind: str, settings: str, **values: str) -> subprocess.Popen[bytes]:
            own = folder / values["address"]
            own.mkdir(parents=True)
            (own / "settings").write_text(settings.format(folder=own, bwrap=bwrap, **values))
            process = stack.enter_context(
                subprocess.Popen(
                    [program, kind, "--config", own / "settings"],
                    env={**os.environ, "SCCACHE_NO_DAEMON": "1"},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            stack.callback(process.kill)
            return process

        key = printed("generate-jwt-hs256-key")
        address = f"127.0.0.1:{free_port()}"
        url = f"http://{address}"
        start("scheduler", SCHEDULER, address=address, key=key)

        def servers() -> int:
            call = HTTPConnection(address)
            with contextlib.suppress(OSError), contextlib.closing(call):
                call.request("GET", STATUS, headers={"Accept": "application/json"})
                return 1 + json.load(call.getresponse())["num_servers"]
            return 0

        wait_for(servers)
        found = {}
        for _ in range(2):
            one = f"127.0.0.1:{free_port()}"
            token = printed(
                "generate-jwt-hs256-server-token", f"--secret-key={key}", "--server", one
            )
            found[one] = start("server", SERVER, address=one, scheduler=url, token=token)
        wait_for(lambda: servers() == 3)
        yield url, found


@contextlib.contextmanager
def started(options: list[str], project: Path, cache: Path) -> Iterator[subprocess.Popen[str]]:
    """A build that runs on, and is stopped with the block."""
    command = [sys.executable, "-m", "torchwheel", "build", str(project), *CPU, *options]
    environ = {**os.environ, "TORCHWHEEL_CACHE": str(cache)}
    with subprocess.Popen(
        command,
        cwd=project.parent,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as build:
        try:
            yield build
        finally:
            build.kill()


def wait_in(build: subprocess.Popen[str], condition: Callable[[], _T]) -> _T:
    """The first true value of a condition while a build runs, which may download a torch first."""

    def found() -> _T:
        assert build.poll() is None, build.communicate()[0]
        return condition()

    return wait_for(found, "a step of the build", seconds=600)


def test_the_compiler_cache_outlasts_a_step_of_any_length(tmp_path, monkeypatch):
    """sccache ends after ten minutes without a call, though a compiler runs that long."""
    monkeypatch.setenv("SCCACHE_IDLE_TIMEOUT", "1")
    (tmp_path / "a.c").write_text("int a;\n")
    variables = folder_cache(tmp_path / "objects", "1G").variables
    with own_server(("sccache",), variables, "--cache objects") as mine:
        environ = {**os.environ, **mine}
        command = ["sccache", "gcc", "-c", "a.c", "-o", "a.o"]
        subprocess.run(command, cwd=tmp_path, env=environ, check=True)
        time.sleep(3)
        assert wait_for_writes(("sccache",), environ) == CacheUse(misses=1)


def test_a_cluster_is_tried_before_a_build(cluster):
    url, _ = cluster
    check_cluster(SchedulerAccess(url, "the token"), ["sccache"], Path("/usr/bin/g++"))
    cases = {
        SchedulerAccess(url, "another"): "Error 401",
        SchedulerAccess(f"http://127.0.0.1:{free_port()}", "the token"): "could not communicate",
    }
    for access, reason in cases.items():
        expected = f"^--on {access.url}: expected a server that compiles, found none: .*{reason}"
        with pytest.raises(TorchwheelError, match=expected):
            check_cluster(access, ["sccache"], Path("/usr/bin/g++"))


@pytest.mark.nightly
def test_a_cluster_compiles_though_a_server_is_killed(project, cluster, cache, tmp_path):
    url, servers = cluster

    def busy() -> tuple[psutil.Process, str] | None:
        """The compiler of the slow file, and the server that runs it."""
        for compiler in compilers_of("/many/many/slow.cpp"):
            with contextlib.suppress(psutil.Error):
                above = {parent.pid for parent in compiler.parents()}
                for address, server in servers.items():
                    if server.pid in above:
                        return compiler, address
        return None

    with started(["--on", url, "--cache", "objects"], project, cache) as build:
        compiler, killed = wait_in(build, busy)
        servers[killed].kill()
        wait_for(lambda: not runs(compiler), seconds=10)
        output, _ = build.communicate(timeout=300)
    assert build.returncode == 0, output
    (record,) = tmp_path.glob("dist/*.whl.json")
    use = json.loads(record.read_text())["cluster"]
    compiled, failed = use["compiled"], use["failed"]
    (other,) = servers.keys() - {killed}
    assert compiled[other]
    assert failed
    assert sum(compiled.values()) + failed == len(STEPS)
    counts = f"cluster {sum(compiled.values())} calls of compilers on {len(compiled)} servers"
    assert f"{counts}, {failed} failed there" in output
    assert "no sandbox: many runs with your rights: other machines compile it" in output


@pytest.mark.parametrize("sandbox", ["auto", pytest.param("off", marks=pytest.mark.nightly)])
def test_the_end_of_a_build_is_that_of_its_compilers(project, cache, tmp_path, sandbox):
    options = ["--cache", "objects", "--sandbox", sandbox]
    with started(options, project, cache) as build:
        compiler = wait_in(build, lambda: compilers_of("/many/many/slow.cpp"))[0]
        assert servers_of(tmp_path / "objects")
        build.send_signal(signal.SIGTERM)
        output, _ = build.communicate(timeout=30)
    assert build.returncode == 128 + signal.SIGTERM
    assert "torchwheel: stopped; run again to go on" in output
    assert not runs(compiler)
    assert not servers_of(tmp_path / "objects")
    assert not list(tmp_path.glob("**/*.whl"))
