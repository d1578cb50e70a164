"""Starts runs that build in a container, and looks at what is left when they are killed."""

import contextlib
import os
import signal
import subprocess

from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.image.engine import LABEL
from torchwheel.pipeline.inputs import run_id
from waiting import wait_for

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
    wait_for(lambda: running_containers(engine, dist), "no container runs")
    engine.call(["kill", *running_containers(engine, dist)], "killing")


def nothing_half_made(dist):
    for wheel in dist.glob("*.whl"):
        assert all(result.ok for result in run_gates(wheel, Limits(max_size_mib=2)))
    assert not list(dist.glob(".*.temporary"))


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
        wait_for(
            lambda: containers(engine, tiny / "dist") or process.poll() is not None,
            "no container started",
        )
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def kill_driver(driver, kill, dist, engine):
    """Kill a run by os.kill or os.killpg, and wait until its container has ended."""
    kill(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_for(lambda: containers(engine, dist) == [], "its container is left")
    nothing_half_made(dist)
