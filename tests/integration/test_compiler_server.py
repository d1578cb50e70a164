"""sccache on a machine with other users: its server is on no port, and none but ours is asked."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from torchwheel.compilers.compiler_cache import CacheUse, folder_cache, own_server, wait_for_writes
from waiting import wait_for

pytestmark = pytest.mark.integration
LAUNCHER = (shutil.which("sccache") or "sccache",)


@pytest.fixture
def planted(monkeypatch) -> Iterator[socket.socket]:
    """Another user's server, where a client of sccache looks for one unless it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        monkeypatch.setenv("SCCACHE_SERVER_PORT", str(server.getsockname()[1]))
        yield server


def was_asked(planted: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        planted.accept()[0].close()
        return True
    return False


@contextlib.contextmanager
def as_another_user() -> Iterator[None]:
    os.seteuid(1001)
    try:
        yield
    finally:
        os.seteuid(0)


def servers_of(process: psutil.Process) -> list[psutil.Process]:
    """The servers of sccache below a process: a client has arguments."""
    with contextlib.suppress(psutil.Error):
        below = process.children(recursive=True)
        return [one for one in below if one.name() == "sccache" and len(one.cmdline()) == 1]
    return []


def ports_of(server: psutil.Process) -> list[object]:
    """Where a server listens, beside sockets in folders."""
    with contextlib.suppress(psutil.Error):
        return [one.laddr for one in server.net_connections("inet") if one.status == "LISTEN"]
    return []


def compile_one(folder: Path, environ: dict[str, str]) -> None:
    (folder / "a.c").write_text("int a;\n")
    command = [*LAUNCHER, "gcc", "-c", "a.c", "-o", "a.o"]
    subprocess.run(command, cwd=folder, env={**os.environ, **environ}, check=True)


@pytest.mark.parametrize("temporary", ["usual", "deep", "shared"])
def test_no_other_user_reaches_the_server_of_a_build(tmp_path, planted, monkeypatch, temporary):
    if temporary != "usual":
        folder = tmp_path / (temporary * (25 if temporary == "deep" else 1))
        folder.mkdir()
        folder.chmod(0o777)
        monkeypatch.setattr("tempfile.tempdir", str(folder))
    variables = folder_cache(tmp_path / "objects", "1G").variables
    for expected in (CacheUse(misses=1), CacheUse(hits=1)):
        with own_server(LAUNCHER, variables, "--cache objects") as mine:
            compile_one(tmp_path, mine)
            (server,) = servers_of(psutil.Process())
            assert ports_of(server) == []
            path = Path(mine["SCCACHE_SERVER_UDS"])
            assert path.parent.stat().st_mode & 0o777 == 0o700
            assert not path.is_relative_to(tmp_path)
            if os.geteuid() == 0:
                with as_another_user(), socket.socket(socket.AF_UNIX) as other:
                    assert other.connect_ex(str(path)) == errno.EACCES
            environ = {**os.environ, **mine}
            assert wait_for_writes(LAUNCHER, environ) == expected
        assert not server.is_running()
        assert not path.parent.exists()
    assert not was_asked(planted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_its_process(tmp_path, planted, number):
    script = (
        "import sys, time\nfrom torchwheel import programs\n"
        "from torchwheel.compilers.compiler_cache import own_server\n"
        "with programs.end_programs_on_signals(), own_server(sys.argv[1:], {}, 'x'):\n"
        "    print('up', flush=True)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, *LAUNCHER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout.readline() == b"up\n"
        (server,) = servers_of(psutil.Process(run.pid))
        run.send_signal(number)
    wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, seconds=10)
    assert not was_asked(planted)


@pytest.mark.parametrize("command", [pytest.param("wheels", marks=pytest.mark.nightly), "kernels"])
def test_a_run_on_the_host_has_a_server_of_its_own(tiny, cache, planted, command):
    words = {"wheels": ["wheels", "cu130-stable"], "kernels": ["kernels", "cu130"]}[command]
    with subprocess.Popen(
        [sys.executable, "-m", "torchwheel", *words],
        cwd=tiny,
        env={**os.environ, "TORCHWHEEL_CACHE": str(cache)},
        stderr=subprocess.PIPE,
    ) as run:
        found: dict[psutil.Process, list[object]] = {}
        asked = False
        while run.poll() is None:
            if asked := asked or was_asked(planted):
                run.terminate()  # its compilers wait for an answer
            for server in servers_of(psutil.Process(run.pid)):
                found[server] = found.get(server, []) + ports_of(server)
            time.sleep(0.05)
        assert not asked
        assert run.returncode == 0, run.stderr.read()
    assert list(found.values()) == [[]]
    assert not any(server.is_running() for server in found)
