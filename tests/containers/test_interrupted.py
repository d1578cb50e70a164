"""However a container build is interrupted, nothing half-made and no container is left behind."""

import contextlib
import os
import signal
import subprocess
import time

import psutil
import pytest

from smalldisk import small_disk
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.image.engine import LABEL
from torchwheel.pipeline.inputs import run_id

pytestmark = pytest.mark.containers

SECONDS = 120


def running_containers(engine, dist, *options):
    """Those of the runs that write to `dist`: others may be at work on this machine."""
    label = f"label={LABEL}={run_id(dist.resolve())}"
    return engine.call(["ps", *options, "--quiet", "--filter", label], "listing").split()


def containers(engine, dist):
    """Also those that do not run yet, or no more."""
    return running_containers(engine, dist, "--all")


def kill_containers(engine, dist):
    """The engine kills none that it has only created."""
    wait_until(lambda: running_containers(engine, dist), "no container runs")
    engine.call(["kill", *running_containers(engine, dist)], "killing")


def wait_until(holds, what):
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < SECONDS, what
        time.sleep(0.1)


def nothing_half_made(dist):
    for wheel in dist.glob("*.whl"):
        assert all(result.ok for result in run_gates(wheel, Limits(max_size_mib=2)))
    assert not list(dist.glob(".*.temporary"))


def cibuildwheel(driver):
    """The driver's child. Its own children come and go, and begin as copies of it."""
    for one in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "cibuildwheel" in one.cmdline():
                return one
    pytest.fail("the driver has no cibuildwheel")


@contextlib.contextmanager
def started(command, environ, tiny, engine):
    """A run with its container at work, and something to compile; it is killed in the end."""
    source = tiny / "csrc" / "scale.cu"
    source.write_text(source.read_text() + "\n// x\n")
    process = subprocess.Popen(
        command,
        cwd=tiny,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: containers(engine, tiny / "dist") or process.poll() is not None,
            "no container started",
        )
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


# The driver with its children, and alone; then what it has started.
@pytest.mark.parametrize(
    ("drivers", "children"),
    [((os.killpg,), ()), pytest.param((os.kill,), (0, 1), marks=pytest.mark.nightly)],
    ids=["one kill", "all"],
)
def test_whatever_is_killed_the_next_run_finishes(
    command, environ, tiny, engine, torchwheel, drivers, children
):
    """One after the other: each run begins with what the killed one left."""
    for kill in drivers:
        with started(command, environ, tiny, engine) as driver:
            kill(driver.pid, signal.SIGKILL)
            driver.wait()
            wait_until(lambda: containers(engine, tiny / "dist") == [], "its container is left")
            nothing_half_made(tiny / "dist")
    kill_child = (
        lambda driver: cibuildwheel(driver).kill(),
        lambda _: kill_containers(engine, tiny / "dist"),
    )
    for child in children:
        with started(command, environ, tiny, engine) as driver:
            kill_child[child](driver.pid)
            said, _ = driver.communicate(timeout=SECONDS)
            assert driver.returncode == 1
            assert "failed: cu130-stable: " in said
            assert "Traceback" not in said
            assert containers(engine, tiny / "dist") == []
            nothing_half_made(tiny / "dist")
    done = torchwheel(cwd=tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tiny / "dist").glob("*.whl"))) == 1
    assert not list((tiny / "dist" / ".torchwheel").glob("making-*"))
    nothing_half_made(tiny / "dist")
    assert containers(engine, tiny / "dist") == []


@pytest.mark.nightly
def test_a_full_disk(tiny, engine, torchwheel, tmp_path):
    small = tmp_path / "small"
    with small_disk(small, "size=48k") as change:
        done = torchwheel("--dist", small / "dist", cwd=tiny)
        assert done.returncode == 1
        assert "no space left" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert not list((small / "dist").glob("*.whl"))
        assert containers(engine, small / "dist") == []
        change("size=64m")
        done = torchwheel("--dist", small / "dist", cwd=tiny)
        assert done.returncode == 0, done.stdout + done.stderr
