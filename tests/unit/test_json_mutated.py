"""Every reader of our own JSON: a mutated file is read, or is one line, and never a traceback."""

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import signing
from jsonmutator import mutated
from torchwheel.evidence.bundles import open_verifier
from torchwheel.index import catalogue
from torchwheel.index.contents import index_of
from torchwheel.index.pages import index_pages
from torchwheel.index.store import Store
from torchwheel.index.withdrawals import Withdrawals
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline import bundled, inside, kernel_artifacts, records
from torchwheel.release import artifacts, report
from torchwheel.sdist import build_setup
from torchwheel.smoke import record as smoke_record
from torchwheel.smoke import requirements, results
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.record import GpuRecord, ImportRecord, MachineRecord, TestResult, summarize
from torchwheel.steps.compiler_cache import CacheUse
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime import data
from torchwheel_runtime.builder import hipify
from torchwheel_runtime.builder.objects import CompiledObject
from torchwheel_runtime.doctor import importing
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.jit import entry
from torchwheel_runtime.process import ProcessResult
from torchwheel_runtime.runtime.status import ExtensionStatus, OperatorStatus, Refusal
from torchwheel_runtime.toolkit import index, lock
from wheelmaker import make_wheel, universal

MACHINE = MachineRecord("3.12.1", "linux_x86_64", "2.39", "2.11", "13.0", None, None)
WHEEL = "demo-1.0.0-py3-none-any.whl"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A good file, and what reads it: gets a folder of its own, and the file's bytes."""

    text: str
    read: Callable[[Path, bytes], object]


def _dump(value: object) -> str:
    return json.dumps(dataclasses.asdict(value))  # type: ignore[call-overload]


BUILD = records.BuildRecord(
    "pure", "key", WHEEL, "ab", 5, ("8.0",), "any", 7, "passed", 1.0, {"build": 1.5}
)
SMOKE = smoke_record.SmokeRecord(
    wheel=WHEEL,
    sha256="ab",
    size=5,
    date="2026-11-20T00:00:00+00:00",
    machine=dataclasses.replace(MACHINE, gpu=GpuRecord("NVIDIA H200", "9.0", "580.1")),
    imported=(ImportRecord("demo", "demo/__init__.py"),),
    tests=summarize((TestResult("test_x.py::test_a", "passed", 0.5),)),
    sources="ef",
    operators={"demo": {"scale": "prebuilt"}},
    verdict="passed",
    why=None,
    bundled={"other.whl": "cd"},
    variables={"TORCHWHEEL_CACHE": None, "TORCHWHEEL_LIBRARY": "cu124"},
    choices={"demo": ("front end: stable",)},
)
MANIFEST = kernel_artifacts.Manifest(
    kernel_artifacts.KernelInputs(
        "cu124", "demo", "8.0", "12", "g++", "0.1.0", "", "", {"a.cu": "ab"}
    ),
    "1/1",
    True,
    (CompiledObject("device", "a.cu.o", "cd", "ef"),),
)
STATUS = ExtensionStatus(
    "demo",
    "auto",
    (OperatorStatus("scale", ("demo::scale",), "fallback", None, (Refusal("prebuilt", "no"),)),),
)


def read_records(folder: Path, content: bytes) -> None:
    file = folder / records.FOLDER / "pure.json"
    for read in (
        lambda: records.load_finished(folder, "pure", "key"),
        lambda: records.all_records(folder),
        lambda: records.forget_record(folder, "pure"),
    ):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        (folder / WHEEL).touch()
        read()
    assert folder.is_dir()


def read_request(folder: Path, content: bytes) -> None:
    (folder / records.FOLDER).mkdir(exist_ok=True)
    (folder / records.FOLDER / records.REQUEST_FILE).write_bytes(content)
    records.last_request(folder)


def read_bundled(folder: Path, content: bytes) -> None:
    (folder / "state").write_bytes(content)
    bundled._is_current(folder / "state", "key", folder)


def read_manifest(folder: Path, content: bytes) -> None:
    (folder / "cu124").mkdir(exist_ok=True)
    (folder / "cu124" / "manifest.json").write_bytes(content)
    kernel_artifacts.choose_artifacts(folder, MANIFEST.inputs)


def read_usage(folder: Path, content: bytes) -> None:
    for step in inside.STEPS:
        (folder / inside.usage_file(step)).write_bytes(content)
    inside.read_usage(folder)


def read_cache_use(folder: Path, content: bytes) -> None:
    (folder / inside.CACHE_USE).write_bytes(content)
    inside.read_cache_use(folder)


def catalogue_text(folder: Path) -> str:
    """The catalogue of a release with one wheel."""
    wheel = make_wheel(folder)
    entry = catalogue.read_wheel_entry(read_wheel(wheel), "2026-11-24T08:00:00Z")
    run = catalogue.SmokeRun(
        *("pure.smoke-1.json", "2026-11-24T08:00:00Z", "passed", True, "3.12.1", "linux_x86_64"),
        *("2.13.0", "NVIDIA H200", "9.0", "580", 5, 1),
    )
    entry = dataclasses.replace(entry, smoke=(run,), gates={"archs": "none"})
    return catalogue.catalogue_text(catalogue.Catalogue("demo", "v1.0.0", (entry,)))


def read_catalogues(folder: Path, content: bytes) -> None:
    (folder / "v1").mkdir(exist_ok=True)
    (folder / "v1" / catalogue.FILE).write_bytes(content)
    report.first_uploads([], folder / "v1", ())
    catalogues = catalogue.read_catalogues([folder])
    index = index_of(catalogues, Store("https://host/{tag}"), Withdrawals())
    for page in index_pages(index):
        page.text()


def attestation_text(root: signing.Root) -> str:
    """A sigstore bundle over one file."""
    job = signing.Job("https://github.com/owner/demo", ".github/workflows/wheels.yml", "a" * 40)
    return json.dumps(signing.bundle(root, job, signing.statement([("a.whl", "b" * 64)], job)))


def read_trusted_root(folder: Path, content: bytes) -> None:
    (folder / "root.json").write_bytes(content)
    open_verifier(str(folder / "root.json"))


def read_artifacts(folder: Path, content: bytes) -> None:
    for name in (records.FOLDER, artifacts.SMOKE_FOLDER):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "pure.json").write_bytes(content)
    for fault in artifacts.read_artifacts([folder]).faults:
        assert "\n" not in fault


def read_claims(folder: Path, content: bytes) -> None:
    claims_file.loads(content.decode("utf-8", "surrogateescape"), "x")


def read_probe(folder: Path, content: bytes) -> None:
    (folder / "probe").write_bytes(content)
    (folder / "junit").write_text("<a/>")
    results.record_from_files(Path(__file__), (), folder / "probe", folder / "junit", "ab", 0)


def read_answers(folder: Path, content: bytes) -> None:
    importing._result(importing._parse_answers(content), 0, "", 1.0)


def read_entry(folder: Path, content: bytes) -> None:
    try:
        entry.load_entry(content)
    except ValueError as error:  # it makes the cache's entry a corrupt one
        raise TorchwheelError(str(error)) from error


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Reader]:
    said = b""

    def run(*_: object, **__: object) -> ProcessResult:
        return ProcessResult(0, said.decode("utf-8", "surrogateescape"))

    def said_by_a_child(read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
        def through(folder: Path, content: bytes) -> object:
            nonlocal said
            said = content
            return read(folder)

        return through

    def run_pip(arguments: list[str], *_: object, **__: object) -> None:
        Path(arguments[arguments.index("--report") + 1]).write_bytes(said)

    def read_lock(folder: Path, content: bytes) -> None:
        (folder / lock.FILE).write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr(data, "FOLDER", folder)
            lock.locked_releases()
            lock.pinned_requirements(lock.components("13.0"), lock.PLATFORMS[0])
            lock.torch_source("2.11")

    monkeypatch.setattr(build_setup, "run_python", run)
    monkeypatch.setattr(requirements.process, "run", run)
    monkeypatch.setattr(index, "run_pip", run_pip)
    env = Environment(Path("python"), {}, Path("site"))
    child = Path(hipify._CHILD)
    root = signing.open_root(tmp_path / "root")
    verifier = open_verifier(str(root.trusted_root))

    def read_attestation(folder: Path, content: bytes) -> None:
        (folder / "a.sigstore.json").write_bytes(content)
        verifier.read(folder / "a.sigstore.json")

    return {
        "claims": Reader(claims_file.dumps(universal()), read_claims),
        "build record": Reader(_dump(BUILD), read_records),
        "request": Reader(_dump(records.WheelsRequest(("pure",), ("8.0",))), read_request),
        "bundled": Reader(json.dumps({"key": "key", "files": {WHEEL: "ab"}}), read_bundled),
        "usage": Reader(_dump(inside.Usage(1.5, 5)), read_usage),
        "cache use": Reader(_dump(CacheUse(1, 2)), read_cache_use),
        "catalogue": Reader(catalogue_text(tmp_path / "made"), read_catalogues),
        "attestation": Reader(attestation_text(root), read_attestation),
        "trusted root": Reader(root.trusted_root.read_text(), read_trusted_root),
        "manifest": Reader(
            json.dumps({"schema": 1, **dataclasses.asdict(MANIFEST)}), read_manifest
        ),
        "artifact: build": Reader(_dump(BUILD), read_artifacts),
        "artifact: smoke": Reader(smoke_record.dump_smoke(SMOKE), read_artifacts),
        "torch": Reader(TORCH, said_by_a_child(lambda cwd: build_setup.import_torch(env, cwd))),
        "doctor's child, found": Reader(ANSWER, read_answers),
        "doctor's child": Reader(
            IMPORTED, lambda at, content: read_answers(at, f"{ANSWER}\n".encode() + content)
        ),
        "interpreter": Reader(
            json.dumps({"path": "/usr/bin/python3", "version": "3.12.1", "build": "gcc"}),
            said_by_a_child(lambda _: requirements.find_interpreter("/bin/sh")),
        ),
        "probe": Reader(PROBE, read_probe),
        "pip's report": Reader(
            PIP, said_by_a_child(lambda _: index.find_files(["x"], "linux_x86_64"))
        ),
        "hipify": Reader(
            json.dumps({"a.cu": "a.hip"}),
            said_by_a_child(lambda folder: hipify._translated(folder, ["a.cu"], (), child)),
        ),
        "jit entry": Reader(ENTRY, read_entry),
        "lock": Reader((data.FOLDER / lock.FILE).read_text(), read_lock),
    }


KINDS = (
    *("claims", "build record", "request", "bundled", "usage", "catalogue", "artifact: build"),
    *(
        "artifact: smoke",
        "torch",
        "doctor's child, found",
        "doctor's child",
        "interpreter",
        "probe",
        "pip's report",
    ),
    *("hipify", "jit entry", "lock", "attestation", "trusted root", "manifest"),
)
TORCH = json.dumps(
    {
        "version": "2.11.0",
        "cuda": "13.0",
        "hip": None,
        "folder": "/torch",
        "old_abi": False,
        "archs": ["sm_90"],
        "loaded": ["libc.so.6"],
    }
)
ANSWER = json.dumps({"spec": {"origin": "/demo/__init__.py", "folders": ["/demo"]}})
IMPORTED = json.dumps(
    {
        "status": dataclasses.asdict(STATUS),
        "torch": True,
        "libraries": ["/libc.so.6"],
        "where": [["/demo/__init__.py", 3]],
    }
)
PROBE = json.dumps(
    {
        "machine": dataclasses.asdict(SMOKE.machine),
        "site": "/site",
        "imported": [{"name": "demo", "file": "/site/demo/__init__.py", "error": None}],
    }
)
PIP = json.dumps(
    {
        "version": "1",
        "install": [
            {
                "metadata": {"name": "x", "version": "1"},
                "download_info": {"url": "u", "archive_info": {"hashes": {"sha256": "ab"}}},
            }
        ],
    }
)
ENTRY = entry.dump_entry(
    entry.CacheEntry("0f" * 16, "a.b", ("9.0",), "CUDA 13.0", "2.13", "a.so", 3, "ab")
)


@pytest.mark.parametrize("count", [50, pytest.param(300, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_read_or_is_one_line(kind, count, readers, tmp_path):
    reader, rng = readers[kind], random.Random(17)
    folder = tmp_path / "read"
    folder.mkdir()
    for _ in range(count):
        content = mutated(reader.text, rng)
        assert error_line(reader, folder, content).count("\n") == 0, content


def error_line(reader: Reader, folder: Path, content: bytes) -> str:
    """The error's text; anything but a TorchwheelError goes through."""
    try:
        reader.read(folder, content)
    except TorchwheelError as error:
        return str(error)
    return ""
