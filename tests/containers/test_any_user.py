"""Builds in containers by users whom no image knows."""

import os

import pytest

from torchwheel import cli
from torchwheel.image.engine import Engine

pytestmark = pytest.mark.containers


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to another user")
def test_a_user_whom_the_image_does_not_know_builds_a_wheel(
    tiny, engine, environ, monkeypatch, capfd
):
    """A hosted runner's user is 1001, and the recipes make user 1000."""
    monkeypatch.setattr(Engine, "user", (1001, 1001))
    monkeypatch.setenv("TORCHWHEEL_CACHE", environ["TORCHWHEEL_CACHE"])
    monkeypatch.chdir(tiny)
    status = cli.main(["wheels", "--container", "cu130-stable"])
    said = capfd.readouterr()
    assert status == 0, said.out + said.err
    assert list((tiny / "dist").glob("*.whl"))


def test_this_user_owns_what_a_container_writes(base, engine, tmp_path):
    engine.give(tmp_path)
    name = base.local if engine.content_of(base.local) else base.public
    command = ["run", "--rm", *engine.user_options(), f"--volume={tmp_path}:/out:rw", name]
    engine.call([*command, "sh", "-c", "touch ~/a /out/b && test -n $USER"], "writing")
    written = (tmp_path / "b").stat().st_uid
    assert written == (os.geteuid() or engine.user[0])
