"""Machines that share a compiler cache: sccache in each container, one Redis for all."""

import contextlib
import re
import secrets
import shutil
import socket
import subprocess
import time

import pytest

pytestmark = pytest.mark.containers


@pytest.fixture
def redis(tmp_path):
    """A real Redis that containers reach; yields its address, its password and a command to ask it.

    It listens on every address, since a container may have a network of its own: hence a password.
    """
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server here (apt-get install redis-server)")
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: this asks the kernel which of our addresses others see.
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
    password = secrets.token_hex(16)
    config = tmp_path / "redis.conf"
    config.write_text(f"bind * -::*\nport {port}\nrequirepass {password}\nsave ''\n")
    with subprocess.Popen(["redis-server", str(config)], stdout=subprocess.DEVNULL) as server:

        def ask(*words: str) -> str:
            command = ["redis-cli", "-h", address, "-p", str(port), "--no-auth-warning"]
            command += ["-a", password, *words]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        try:
            for _ in range(100):
                with contextlib.suppress(subprocess.CalledProcessError):
                    if "PONG" in ask("ping"):
                        break
                time.sleep(0.05)
            yield f"tcp://{address}:{port}", password, ask
        finally:
            server.terminate()


def counted(ask, name):
    return int(re.search(rf"^{name}:(\d+)", ask("info", "stats"), re.MULTILINE)[1])


@pytest.mark.nightly
def test_what_one_machine_compiled_another_does_not(tmp_path, tiny_in, torchwheel, redis):
    address, password, ask = redis
    settings = {"SCCACHE_REDIS_ENDPOINT": address, "SCCACHE_REDIS_PASSWORD": password}
    torchwheel(cwd=tiny_in(tmp_path / "one"), **settings)
    stored = int(ask("dbsize"))
    assert stored >= 2, "a kernel and a binding"
    hits = counted(ask, "keyspace_hits")
    # Another folder has objects of its own, as another machine has.
    torchwheel(cwd=tiny_in(tmp_path / "another"), **settings)
    assert counted(ask, "keyspace_hits") - hits >= 2
    assert int(ask("dbsize")) == stored
