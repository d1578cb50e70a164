"""Trying a wheel for another platform: what the container gets and leaves, without an emulator."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchwheel.image.engine import Engine
from torchwheel.image.images import BuiltImage
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import resolve
from torchwheel.pipeline import in_container
from torchwheel_runtime.errors import TorchwheelError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def smoke_emulated(tmp_path, monkeypatch, run_of):
    """Tries a wheel of a variant with a function in place of the container."""
    monkeypatch.setattr(in_container, "_HANDLERS", tmp_path)
    (tmp_path / "qemu-aarch64").touch()
    image = BuiltImage("localhost/torchwheel/image:0123", "0123", "4567")
    monkeypatch.setattr(in_container, "ensure_image", lambda *_: image)
    monkeypatch.setattr(in_container, "_smoke_record", lambda *_: "record")
    matrix = load(ROOT / "matrix.yaml")
    engine = Engine("podman", {})
    run = run_of(matrix, ROOT, engine=engine)

    def smoke(name: str, container: Callable[[Engine, list[str], Path], bool]) -> object:
        monkeypatch.setattr(Engine, "succeeds", container)
        variant = next(one for one in resolve(matrix) if one.id == name)
        return in_container.smoke_emulated(run, variant, engine, tmp_path / "demo.whl")

    return smoke


@pytest.mark.parametrize("name", ["universal-linux_aarch64", "cu130-stable-linux_aarch64"])
def test_the_container_may_write_its_report(name, tmp_path, monkeypatch, smoke_emulated):
    """The folder of a variant that no container has built belongs to root."""
    owners: dict[Path, int] = {}
    mounted: list[str] = []

    def run_tests(_: Engine, command: list[str], log: Path) -> bool:
        assert owners[log.parent] == 1000
        mounted.extend(command)
        return True

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, user, _, **__: owners.update({path: user}))
    assert smoke_emulated(name, run_tests) == "record"
    assert f"{tmp_path}/demo.whl:/wheels/demo.whl:ro" in " ".join(mounted)


def link_to_a_key(path):
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("leave", [link_to_a_key, os.mkfifo])
@pytest.mark.parametrize("name", ["probe.json", "native/objects"])
def test_what_a_container_leaves_leads_to_no_file_of_this_machine(name, leave, smoke_emulated):
    def leave_it(_: Engine, __: list[str], log: Path) -> bool:
        (log.parent / name).parent.mkdir(exist_ok=True)
        leave(log.parent / name)
        return True

    with pytest.raises(TorchwheelError, match=f"/{name}: expected files and folders alone, found"):
        smoke_emulated("universal-linux_aarch64", leave_it)


def test_a_log_is_not_written_through_a_link_of_an_earlier_container(tmp_path, smoke_emulated):
    own = tmp_path / "own"
    own.write_text("mine")

    def run_tests(_: Engine, __: list[str], log: Path) -> bool:
        log.write_text("log")
        log.unlink()
        log.symlink_to(own)
        return True

    for _ in range(2):
        with pytest.raises(TorchwheelError, match=r"emulated\.log: expected files and folders"):
            smoke_emulated("universal-linux_aarch64", run_tests)
    assert own.read_text() == "mine"
