"""What is missing for the containers of a run is said at once, with the way to get it."""

from pathlib import Path

import pytest

from programmaker import program
from torchwheel.image import engine as engines
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.variants import resolve
from torchwheel.pipeline import before_images, in_container
from torchwheel.pipeline.before_images import ready_engine
from torchwheel.toolkit.torch_files import TorchFile
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError, UsageError

ROOT = Path(__file__).parents[3]
MATRIX = (ROOT / "tests" / "unit" / "matrix" / "ordinary.yaml").read_text()
# An engine that has the releases that images begin with, and no image.
WORKS = 'case "$*" in *base:*) echo layers ;; info*) echo "$ROOT" ;; *" inspect "*) exit 1 ;; esac'


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A PATH with runc alone, packages of today, and an index that has every torch."""
    folder = tmp_path / "bin"
    program(folder / "runc")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(engines, "_SBIN", str(folder))
    monkeypatch.setenv("ROOT", str(tmp_path))
    monkeypatch.setenv("TORCHWHEEL_SNAPSHOTS", "none")
    monkeypatch.setattr(engines, "_is_restricted", lambda _: True)
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.setattr(before_images, "torch_of", lambda *_: TorchFile("2.13.0", "0" * 64))
    return folder


def ready(tmp_path, text=MATRIX, modules=(), name="cu130-torch2.1"):
    """The engine for the variants of a matrix whose names begin with `name`."""
    matrix = parse(text, "matrix.yaml")
    variants = [one for one in resolve(matrix) if one.id.startswith(name)]
    return ready_engine(matrix, variants, tmp_path, tmp_path / "cache", Quiet(), modules)


def missing(tmp_path, *call, **options):
    with pytest.raises(TorchwheelError) as raised:
        ready(tmp_path, *call, **options)
    return raised.value


def test_an_engine_that_has_everything_is_taken(machine, tmp_path):
    program(machine / "podman", WORKS)
    assert ready(tmp_path).name == "podman"


NO_RUNC = "so crun fails; expected runc, found none: `apt-get install runc`, or name settings of"
NO_BASE = (
    "base image debian:bullseye-slim: podman: Error: no route; where no registry can be reached, "
    "make it: `apt-get install mmdebstrap`, then `nox -s base-images`"
)
DENIED = 'case "$1" in info) echo "Error: cannot set up namespace" >&2; exit 125 ;; esac'


@pytest.mark.parametrize(
    ("podman", "docker", "gone", "said"),
    [
        (None, None, (), "no container engine: neither docker (with its server running) nor"),
        (WORKS, None, ("runc",), NO_RUNC),
        (DENIED, None, (), "the container engine: podman: Error: cannot set up namespace"),
        (None, 'case "$1" in buildx) exit 1 ;; esac; echo 28', (), "apt-get install docker-buildx"),
        ('[ "$1" = info ] || { echo "Error: no route" >&2; exit 125; }', None, (), NO_BASE),
    ],
)
def test_what_an_engine_lacks_is_said_before_the_first_image(
    machine, tmp_path, podman, docker, gone, said
):
    for name, script in (("podman", podman), ("docker", docker)):
        if script:
            program(machine / name, script)
    for name in gone:
        (machine / name).unlink()
    error = missing(tmp_path)
    assert said in str(error)
    assert len(error.args) == 1
    assert "build without" not in str(error)  # an ordinary project cannot


def test_everything_that_is_missing_is_one_list(machine, tmp_path, monkeypatch):
    program(machine / "podman", WORKS)
    text = MATRIX.replace("    source: pypi", '    source: pypi\n    host_compiler: {gcc: "<11"}')
    text = text.replace('"2.13"', '"2.14"')
    text += 'containers: {base: bullseye, python: "3.11"}\n'

    def not_there(matrix, variant, *_):
        raise TorchwheelError(f"looking up torch=={variant.torch_release}.*: no such release")

    monkeypatch.setattr(before_images, "torch_of", not_there)
    monkeypatch.setattr(engines.Engine, "free_space", lambda _: (Path("/images"), 3 << 29))
    error = missing(tmp_path, text, ("sys", "no_such_module"), name="cu1")
    assert [line.partition(" ")[0] for line in error.args] == [
        "no_such_module",
        "toolkit",
        "looking",
        "looking",
        "/images:",
    ]
    assert error.args[1].startswith("toolkit cu130: expected a g++ with C++20 for torch's headers")
    assert {line[11:21] for line in error.args[2:4]} == {"torch==2.6", "torch==2.1"}
    assert error.args[4] == (
        "/images: expected 4 GiB free for images (2), found 1.5; free some, e.g. `podman image "
        "prune`"
    )
    assert error.status == 1


def test_a_matrix_that_cannot_be_is_a_wrong_call(machine, tmp_path):
    program(machine / "podman", WORKS)
    text = MATRIX + 'containers: {base: trixie, python: "3.11", glibc: "2.28"}\n'
    error = missing(tmp_path, text)
    assert isinstance(error, UsageError)
    assert len(error.args) == 1  # for all variants


def test_a_day_that_the_service_lacks_is_said_before_a_release_is_pulled(
    machine, tmp_path, monkeypatch
):
    program(machine / "podman", 'echo "$@" >>"$ROOT/calls"', WORKS)
    monkeypatch.setenv("TORCHWHEEL_SNAPSHOTS", "http://127.0.0.1:9/archive")
    dated = 'containers: {base: bullseye, python: "3.11", snapshot: "20261030T120000Z"}\n'
    error = missing(tmp_path, MATRIX + dated)
    assert "expected Debian's bullseye of that day, found: " in str(error)
    assert "pull" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("emulator", [False, True])
def test_the_image_of_another_machine_is_needed_where_it_can_run(
    machine, tmp_path, monkeypatch, emulator
):
    """Without an emulator its wheels are built, and the record says that nobody tried them."""
    program(machine / "podman", WORKS)
    monkeypatch.setattr(before_images, "torch_headers", lambda *_: None)
    monkeypatch.setattr(in_container, "_HANDLERS", tmp_path)
    if emulator:
        (tmp_path / in_container._HANDLER["linux_aarch64"]).touch()
    asked = []
    monkeypatch.setattr(before_images, "check_images", lambda _, images, *__: asked.extend(images))
    matrix = load(ROOT / "matrix.yaml")
    variants = [one for one in resolve(matrix) if one.id == "cu130-stable-linux_aarch64"]
    ready_engine(matrix, variants, ROOT, tmp_path, Quiet())
    names = ["cuda-13.0-cp311-for-aarch64", *(["smoke-forky-arm64"] if emulator else [])]
    assert [image.name for image in asked] == names
