"""Trying a wheel for another platform: what the container gets, without an emulator."""

import os
from pathlib import Path

import pytest

from torchwheel.console import Quiet
from torchwheel.image.build import BuiltImage
from torchwheel.image.engine import Engine
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import resolve
from torchwheel.pipeline import in_container
from torchwheel.pipeline.run import Run

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["universal-linux_aarch64", "cu130-stable-linux_aarch64"])
def test_the_container_may_write_its_report(name, tmp_path, monkeypatch):
    """The folder of a variant that no container has built belongs to root."""
    owners: dict[Path, int] = {}
    mounted: list[str] = []

    def run_tests(_: Engine, command: list[str], log: Path) -> bool:
        assert owners[log.parent] == 1000
        mounted.extend(command)
        return True

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, user, _: owners.update({path: user}))
    monkeypatch.setattr(in_container, "_HANDLERS", tmp_path)
    (tmp_path / "qemu-aarch64").touch()
    image = BuiltImage("localhost/torchwheel/image:0123", "0123", "4567")
    monkeypatch.setattr(in_container, "ensure_image", lambda *_: image)
    monkeypatch.setattr(Engine, "succeeds", run_tests)
    monkeypatch.setattr(in_container, "_smoke_record", lambda *_: "record")

    matrix = load(ROOT / "matrix.yaml")
    engine = Engine("podman", {})
    (tmp_path / "cache").mkdir()
    run = Run(matrix, ROOT, ROOT, tmp_path / "dist", tmp_path / "cache", "", (), Quiet(), engine, 2)
    variant = next(one for one in resolve(matrix) if one.id == name)
    wheel = tmp_path / "demo.whl"
    assert in_container.smoke_emulated(run, variant, engine, wheel) == "record"
    assert f"{wheel}:/wheels/demo.whl:ro" in " ".join(mounted)
