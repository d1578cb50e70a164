"""What no fuzzer reads of our own JSON: a mutated file is read, or is one line.

`nox -s fuzz` mutates the others: tests/fuzz/fuzz_targets.py lists them.
"""

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from jsonmutator import mutated
from torchwheel import interpreters
from torchwheel.compilers.compiler_cache import CacheUse
from torchwheel.inspect.sbom import parse_sbom
from torchwheel.install.bundle import BundleFile, BundleMachine, BundleManifest, read_bundle
from torchwheel.pipeline import bundled, inside
from torchwheel.smoke import testing
from torchwheel.smoke.trial_environment import Environment
from torchwheel_runtime.builder import sources
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.process import ProcessResult
from torchwheel_runtime.toolkit import index
from wheelmaker import sbom_text, stable

WHEEL = "demo-1.0.0-py3-none-any.whl"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A good file, and what reads it: gets a folder of its own, and the file's bytes."""

    text: str
    read: Callable[[Path, bytes], object]


def read_bundled(folder: Path, content: bytes) -> None:
    (folder / "state").write_bytes(content)
    bundled._is_current(folder / "state", "key", folder)


def read_offline(folder: Path, content: bytes) -> None:
    (folder / "bundle.json").write_bytes(content)
    read_bundle(folder)


def read_usage(folder: Path, content: bytes) -> None:
    for step in inside.STEPS:
        (folder / inside.usage_file(step)).write_bytes(content)
    inside.read_usage(folder)


def read_cache_use(folder: Path, content: bytes) -> None:
    (folder / inside.CACHE_USE).write_bytes(content)
    inside.read_cache_use(folder)


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Reader]:
    said, interpreter = b"", dataclasses.asdict(interpreters.running_interpreter())

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

    monkeypatch.setattr(testing, "run_python", run)
    monkeypatch.setattr(interpreters.process, "run", run)
    monkeypatch.setattr(index, "run_pip", run_pip)
    env = Environment(Path("python"), {}, Path("site"))
    child = Path(sources._CHILD)
    state, usage = {"key": "key", "files": {WHEEL: "ab"}}, inside.Usage(1.5, 5)
    return {
        "bundled": Reader(json.dumps(state), read_bundled),
        "usage": Reader(json.dumps(dataclasses.asdict(usage)), read_usage),
        "cache use": Reader(json.dumps(dataclasses.asdict(CacheUse(1, 2))), read_cache_use),
        "bundle": Reader(BUNDLE, read_offline),
        "SBOM": Reader(SBOM, lambda _, content: parse_sbom(content, "x")),
        "torch": Reader(TORCH, said_by_a_child(lambda cwd: testing.import_torch(env, cwd))),
        "interpreter": Reader(
            json.dumps(interpreter, default=str),
            said_by_a_child(lambda _: interpreters.find_interpreter("/bin/sh")),
        ),
        "pip's report": Reader(
            PIP, said_by_a_child(lambda _: index.find_files(["x"], "linux_x86_64"))
        ),
        "hipify": Reader(
            json.dumps({"a.cu": "a.hip"}),
            said_by_a_child(lambda folder: sources._run_hipify(folder, ["a.cu"], (), child)),
        ),
    }


KINDS = (
    "bundled",
    "usage",
    "cache use",
    "SBOM",
    "bundle",
    "torch",
    "interpreter",
    "pip's report",
    "hipify",
)
MACHINE = BundleMachine("CPython 3.12 cp312", "linux_x86_64", "2.36", "torch 2.13.0", ("9.0",))
OFFLINE = BundleManifest(MACHINE, ("demo==1.0",), ("addon",), {"x": BundleFile(0, "ab")})
BUNDLE = json.dumps({"schema": 1, **dataclasses.asdict(OFFLINE)})
SBOM = sbom_text("demo", "1", {"demo/_C.so": b"\x7fELF"}, stable())
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
