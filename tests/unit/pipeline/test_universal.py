"""A universal wheel is assembled from the project's files and the libraries of its parts."""

import dataclasses
import io
import json
import re
import threading
import time
import zipfile
from pathlib import Path
from shutil import copy

import pytest

from listener import Listener
from torchwheel.image.engine import Engine
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, gpu_runner, select
from torchwheel.pipeline import executors
from torchwheel.pipeline.build_records import BuiltWheel
from torchwheel.pipeline.executors import (
    PartFile,
    cpu_seconds_of_parts,
    executor_of,
    merge,
    tasks_of,
    with_parts_here,
)
from torchwheel.pipeline.inputs import Clock, Run, claims_of
from torchwheel.pipeline.inside import usage_file
from torchwheel.pipeline.on_host import Host
from torchwheel.pipeline.repair import stamp, take_flags, wheel_members
from torchwheel.pipeline.schedule import chains_of
from torchwheel_runtime.claims import LibraryFlags
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from wheelmaker import make_wheel

MATRIX = load(Path("matrix.yaml"))
(UNIVERSAL,) = select(MATRIX, ["universal"])


def run_of(folder: Path, engine: Engine | None = None) -> tuple[Run, Listener]:
    heard = Listener()
    return Run(MATRIX, folder, folder, folder, folder, "digest", (), heard, engine), heard


def kernels(variant: Variant) -> list[str]:
    return [part.library for part in variant.parts if part.part == "kernels"]


def test_the_claims_have_each_part():
    claimed = {part.name: part for part in claims_of(UNIVERSAL).parts}
    assert claimed["rocm6.4"].needs.backend == "rocm"
    assert claimed["torch2.6"].needs.torch_range == "==2.6.*"
    assert claimed["stable"].needs.torch_range == ">=2.11"


def test_a_host_builds_the_kernels_of_pypis_toolkits(tmp_path):
    run, heard = run_of(tmp_path)
    here = with_parts_here(run, UNIVERSAL)
    assert kernels(here) == ["cu130"]
    assert len(here.parts) == len(UNIVERSAL.parts) - 3
    assert heard.said == [
        "universal: without cu124, rocm6.4, rocm7.2, which are built in a container only"
    ]


def test_the_cpu_seconds_of_a_part_are_those_of_its_own_build(tmp_path):
    run, _ = run_of(tmp_path, Engine("podman", {}))
    folder = run.variant_folder(UNIVERSAL.parts[-1])
    for step, seconds in (("start", 1.5), ("build", 6.0), ("repair", 7.0)):
        usage = {"cpu_seconds": seconds, "peak_bytes": None}
        (folder / usage_file(step)).write_text(json.dumps(usage))
    assert cpu_seconds_of_parts(run, UNIVERSAL) == {UNIVERSAL.parts[-1].id: 4.5}


def test_containers_build_every_part(tmp_path):
    run, heard = run_of(tmp_path, Engine("podman", {}))
    assert with_parts_here(run, UNIVERSAL) == UNIVERSAL
    assert not heard.said


def test_no_toolkit_for_this_host_is_refused(tmp_path):
    declared = MATRIX.abis.universal
    assert declared
    only = declared.model_copy(update={"toolkits": ("cu124", "rocm7.2")})
    abis = MATRIX.abis.model_copy(update={"universal": only})
    (variant,) = select(MATRIX.model_copy(update={"abis": abis}), ["universal"])
    run, _ = run_of(tmp_path)
    expected = r"universal: none of its toolkits \(cu124, rocm7.2\) can be built on this host: add"
    with pytest.raises(UsageError, match=expected):
        with_parts_here(run, variant)


def test_libraries_are_merged_into_the_pure_wheel(tmp_path):
    base = make_wheel(tmp_path, files={"demo/__init__.py": b"x = 1\n"}, claims=None)
    part = UNIVERSAL.parts[0]
    files = [PartFile(part, "demo/_lib/kernels/cu124.so", b"bytes", b'["cuda: --use_fast_math"]')]
    (tmp_path / "out").mkdir()
    merged = merge(base, files, "linux_x86_64", tmp_path / "out")
    assert merged.name == "demo-1.0.0-py3-none-linux_x86_64.whl"
    wheel = read_wheel(merged)  # every hash is as RECORD has it
    assert {str(tag) for tag in wheel.wheel_tags} == {"py3-none-linux_x86_64"}
    assert not wheel.purelib
    with zipfile.ZipFile(merged) as archive:
        assert archive.read("demo/_lib/kernels/cu124.so") == b"bytes"
        assert archive.read("demo/__init__.py") == b"x = 1\n"
    _, flags = take_flags(wheel_members(merged))
    assert flags == (LibraryFlags("demo/_lib/kernels/cu124.so", ("cuda: --use_fast_math",)),)


class Compiler:
    """Stands for this machine's compiler: it makes the parts' wheels, each with its own bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: str = "", meeting: int = 1):
        self.begun: list[str] = []
        self.failing = failing
        self.meeting = threading.Barrier(meeting)
        monkeypatch.setattr(executors, "torch_headers", lambda *_: Path())
        monkeypatch.setattr(executors, "has_old_abi", lambda _: False)
        monkeypatch.setattr(executors, "repair", lambda wheel, out: Path(copy(wheel, out)))
        build, base = self.build, self.build_base
        monkeypatch.setattr(Host, "build", lambda host, out, *_, **__: build(host.variant, out))
        monkeypatch.setattr(Host, "build_base", lambda _, out: base(out))

    def build_base(self, out: Path) -> Path:
        return make_wheel(out, files={"demo/__init__.py": b"x = 1\n"}, claims=None)

    def build(self, part: Variant, out: Path) -> BuiltWheel:
        self.begun.append(part.library)
        self.meeting.wait(60)
        if part.library == self.failing:
            raise TorchwheelError("g++ died")
        if self.failing:
            time.sleep(1)  # else it could end, and the next begin, before the other has failed
        name = f"demo/_lib/{part.part}/{part.library}.so"
        files = {name: ELF_MAGIC + part.id.encode()}
        return BuiltWheel(make_wheel(out, files=files, claims=claims_of(part)))


def parts_run(folder: Path, parts_at_once: int) -> tuple[Run, Listener, Variant]:
    run, heard = run_of(folder)
    run = dataclasses.replace(run, parts_at_once=parts_at_once)
    return run, heard, with_parts_here(run, UNIVERSAL)


def test_parts_are_built_side_by_side_into_the_same_bytes(tmp_path, monkeypatch):
    made = []
    for at_once in (1, 4):
        folder = tmp_path / str(at_once)
        (folder / "out").mkdir(parents=True)
        run, _, variant = parts_run(folder, at_once)
        # The parts of a turn wait for each other: one after another they would wait in vain.
        host, clock = Compiler(monkeypatch, meeting=at_once), Clock()
        built = executor_of(run, variant).build(folder / "out", clock)
        made.append(built.wheel.read_bytes())
        assert "cu130" in host.begun[:at_once]
        assert {*clock.seconds, "gates", "smoke"} == {*tasks_of(run, variant)}
    assert len(variant.parts) == 8
    assert made[0] == made[1]


def test_a_part_that_fails_is_named_at_once_and_what_is_finished_is_kept(tmp_path, monkeypatch):
    host = Compiler(monkeypatch, failing="stable", meeting=2)
    (tmp_path / "out").mkdir()
    run, _, variant = parts_run(tmp_path, 2)
    log = io.StringIO()
    run = dataclasses.replace(run, progress=Terminal(log))
    executor = executor_of(run, variant)
    with pytest.raises(TorchwheelError, match=r"^g\+\+ died$"), run.progress.task("universal"):
        executor.build(tmp_path / "out", Clock(run.progress))
    assert re.findall(r"universal: (stable\S+: FAILED) after 0\.\d s: (.*)", log.getvalue()) == [
        ("stable-front-end: FAILED", "g++ died")
    ]
    assert sorted(host.begun) == ["cu130", "stable"]
    kept = [path.name for path in run.cached_folder("parts").iterdir()]
    assert [name[: len("cu130-kernels")] for name in kept] == ["cu130-kernels"]


LABELLED = {
    label: variant
    for variant in select(MATRIX, ["universal-c*", "universal-rocm", "pure-null"])
    if (label := variant.label)
}


def test_labels_have_some_of_the_kernels_and_all_front_ends():
    assert {label: kernels(one) for label, one in LABELLED.items()} == {
        "cu12": ["cu124"],
        "cu13": ["cu130"],
        "rocm": ["rocm6.4", "rocm7.2"],
        "null": [],
    }
    others = [part for part in UNIVERSAL.parts if part.part != "kernels"]
    for label in ("cu12", "cu13", "rocm"):
        parts = LABELLED[label].parts
        assert [part for part in parts if part.part != "kernels"] == others
        assert {*parts} <= {*UNIVERSAL.parts}
    assert not LABELLED["null"].native
    # No kernels of CUDA 12.4 or ROCm are built for aarch64.
    ids = [one.id for one in select(MATRIX, ["universal-linux_aarch64*"])]
    assert ids == ["universal-linux_aarch64", "universal-linux_aarch64-cu13"]
    assert gpu_runner(MATRIX, LABELLED["rocm"]) == ("self-hosted", "linux", "x64", "rocm")
    assert gpu_runner(MATRIX, LABELLED["cu12"]) == gpu_runner(MATRIX, UNIVERSAL)


def test_a_labelled_wheel_follows_the_one_whose_parts_it_has():
    chains = chains_of([LABELLED["cu13"], UNIVERSAL, LABELLED["null"], UNIVERSAL.parts[0]])
    ids = [[variant.id for variant in chain] for chain in chains]
    assert ids == [["universal-cu13", "universal"], ["pure-null"], ["cu124-kernels"]]


def test_a_labelled_wheel_has_the_libraries_of_the_universal_one(tmp_path, monkeypatch):
    host = Compiler(monkeypatch)
    wheels = []
    for number, variant in enumerate((UNIVERSAL, LABELLED["cu13"], LABELLED["cu13"])):
        run, _ = run_of(tmp_path)
        out = tmp_path / str(number)
        out.mkdir()
        executor = executor_of(run, with_parts_here(run, variant))
        wheels.append(executor.build(out, Clock()).wheel)
    assert len(host.begun) == len({*host.begun}) == 8  # each part once, for all three
    universal, cu13, again = wheels
    assert cu13.name == universal.name.replace(".whl", "-cu13.whl")
    assert cu13.read_bytes() == again.read_bytes()
    wheel = read_wheel(cu13)
    assert wheel.claims
    assert (wheel.named.label, wheel.claims.label, wheel.claims.variant) == (
        *("cu13", "cu13"),
        "universal-cu13",
    )
    assert list(wheel.labels or ()) == ["cu13"]
    theirs, own = wheel_members(universal), wheel_members(cu13)
    changed = {name for name in own if own[name] != theirs.get(name)}
    assert {name.rpartition("/")[2] for name in changed} == {
        *("variant.json", "torchwheel.json", "RECORD")
    }


def test_the_null_wheel_is_the_pure_one(tmp_path):
    base = make_wheel(tmp_path)
    wheel = read_wheel(stamp(base, claims_of(LABELLED["null"]), tmp_path))
    assert wheel.path.name == base.name.replace(".whl", "-null.whl")
    assert wheel.labels == {"null": {}}
    assert wheel.tags == read_wheel(base).tags
