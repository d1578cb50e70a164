"""What a build on this machine waits for: its toolkit, and torch's headers if it includes them."""

import contextlib
from pathlib import Path

import pytest
from at_work import AtWork

from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline import on_host
from torchwheel.pipeline import wheels as wheels_
from torchwheel.pipeline.inputs import Clock
from torchwheel.pipeline.schedule import in_order
from torchwheel_runtime.toolkit.host import HostCompiler

MATRIX = load(Path("matrix.yaml"))
(UNIVERSAL,) = select(MATRIX, ["universal"])
PARTS = [part for part in UNIVERSAL.parts if on_host.container_reason(part) is None]


@pytest.fixture
def provided(tmp_path, monkeypatch, run_of):
    """`provided(parts)`: the torches whose headers they asked for, and the most at a toolkit."""
    asked, at_work = [], AtWork()

    def provide(*_: object) -> Path:
        with at_work:
            return tmp_path / "toolkit"

    def torch_headers(minor: str, *_: object) -> Path:
        asked.append(minor)
        return tmp_path / "headers"

    def environments(parts: list[Variant]) -> tuple[list[str], int, list[dict[str, str]]]:
        run = run_of(MATRIX, launcher=("sccache",))

        def environment(part: Variant) -> dict[str, str]:
            with wheels_.at_work(run) as served:
                return on_host._environment(served, part, Clock())

        made = in_order(parts, environment, len(parts))
        return asked, at_work.most, made

    @contextlib.contextmanager
    def own_server(launcher, *_):
        yield {"SCCACHE_SERVER_UDS": "/closed/s"} if launcher else {}

    monkeypatch.setattr(wheels_, "own_server", own_server)
    monkeypatch.setattr(on_host, "provide", provide)
    monkeypatch.setattr(on_host, "torch_headers", torch_headers)
    monkeypatch.setattr(on_host, "_host", lambda: HostCompiler(Path("/g++"), "gcc", "12.2.0"))
    return environments


def test_kernels_wait_for_no_header_of_torch(provided):
    kernels = [part for part in PARTS if part.part == "kernels"]
    asked, _, (environment,) = provided(kernels)
    assert asked == []
    assert environment["TORCHWHEEL_TORCH"]
    assert environment["TORCHWHEEL_LAUNCHER"] == "sccache"
    assert environment["SCCACHE_SERVER_UDS"] == "/closed/s", "another user's server may be asked"


@pytest.mark.usefixtures("provided")
def test_a_container_has_a_server_of_its_own(run_of, monkeypatch):
    monkeypatch.setattr(wheels_, "reap_containers", lambda *_: contextlib.nullcontext())
    with wheels_.at_work(run_of(MATRIX, launcher=("sccache",), engine=object())) as served:
        assert served.server == {}


def test_every_other_part_has_the_headers_of_its_torch(provided):
    others = [part for part in PARTS if part.part != "kernels"]
    asked, _, _ = provided(others)
    assert sorted(asked) == sorted(part.torch_release for part in others)


def test_one_build_at_a_time_provides_a_toolkit(provided):
    _, most, made = provided(PARTS)
    assert most == 1
    assert len(made) == len(PARTS) > 2
