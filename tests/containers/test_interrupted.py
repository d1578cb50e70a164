"""However a container build is interrupted, nothing half-made and no container is left behind.

test_wheels.py kills a run for every push.
"""

import contextlib
import os

import psutil
import pytest
from interrupting import (
    SECONDS,
    containers,
    kill_containers,
    kill_driver,
    nothing_half_made,
    started,
)

from smalldisk import small_disk

pytestmark = pytest.mark.containers


def cibuildwheel(driver):
    """The driver's child. Its own children come and go, and begin as copies of it."""
    for one in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "cibuildwheel" in one.cmdline():
                return one
    pytest.fail("the driver has no cibuildwheel")


# The driver with its children, and alone; then what it has started.
@pytest.mark.nightly
def test_whatever_is_killed_the_next_run_finishes(command, environ, tiny, engine, torchwheel):
    """One after the other: each run begins with what the killed one left."""
    for kill in (os.killpg, os.kill):
        with started(command, environ, tiny, engine) as driver:
            kill_driver(driver, kill, tiny / "dist", engine)
    kill_child = (
        lambda driver: cibuildwheel(driver).kill(),
        lambda _: kill_containers(engine, tiny / "dist"),
    )
    for kill in kill_child:
        with started(command, environ, tiny, engine) as driver:
            kill(driver.pid)
            said, _ = driver.communicate(timeout=SECONDS)
            assert driver.returncode == 1
            assert "failed: cu130-stable: " in said
            assert "Traceback" not in said
            assert containers(engine, tiny / "dist") == []
            nothing_half_made(tiny / "dist")
    torchwheel(cwd=tiny)
    assert len(list((tiny / "dist").glob("*.whl"))) == 1
    assert not list((tiny / "dist" / ".torchwheel").glob("making-*"))
    nothing_half_made(tiny / "dist")
    assert containers(engine, tiny / "dist") == []


@pytest.mark.nightly
def test_a_full_disk(tiny, engine, torchwheel, tmp_path):
    small = tmp_path / "small"
    with small_disk(small, "size=48k") as change:
        done = torchwheel("--dist", small / "dist", cwd=tiny, status=1)
        assert "no space left" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert not list((small / "dist").glob("*.whl"))
        assert containers(engine, small / "dist") == []
        change("size=64m")
        done = torchwheel("--dist", small / "dist", cwd=tiny)
