"""Images in a registry, with an engine that writes down what it is asked."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programmaker import program
from torchwheel.image import images as images_module
from torchwheel.image.engine import Engine
from torchwheel.image.images import BuiltImage, describe_image, ensure_image
from torchwheel.image.recipes import BaseImage, Image, image_of
from torchwheel.image.registry import (
    ImagesLock,
    Registry,
    push_image,
    registry_of,
    write_lock,
)
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import resolve
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError

ROOT = Path(__file__).parents[3]
DIGEST, OTHER = (f"sha256:{digit * 64}" for digit in "ab")
DAY = "20261030T120000Z"

# Answers as podman does; images that were tagged or built are there from then on.
PODMAN = """
echo "$*" >> "$STATE/said"
case "$1 $2" in
  "image inspect") ref=${5}; case "$4" in
      *RootFS*) [ -e "$STATE/$(echo "$ref" | tr / _)" ] && echo '["layer"]' ;;
      *Labels*) cat "$STATE/label" ;;
      *) exit 1 ;;
    esac ;;
  "tag "*) touch "$STATE/$(echo "$3" | tr / _)" ;;
  "pull "*) [ ! -e "$STATE/refuse" ] || { echo "Error: manifest digest differs" >&2; exit 1; } ;;
  "push "*) echo "$PUSHED" > "$5" ;;
  "build "*) while [ "$1" != --tag ]; do shift; done; touch "$STATE/$(echo "$2" | tr / _)" ;;
esac
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "state").mkdir()
    program(tmp_path / "bin" / "podman", PODMAN)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Engine("podman", {"STATE": f"{tmp_path}/state", "PUSHED": DIGEST})


def said(tmp_path):
    return (tmp_path / "state" / "said").read_text().splitlines()


def dated(name="toolkit"):
    base = Image(
        "debian-x",
        "FROM base",
        {"SNAPSHOT": DAY},
        {},
        {"BASE_IMAGE": BaseImage("x", snapshot=DAY)},
        mirrors={"SNAPSHOTS": "http://127.0.0.1:9/archive"},
    )
    return Image(name, "FROM debian", {}, {}, {"BASE_IMAGE": base})


@pytest.fixture
def registry(tmp_path, engine):
    """A registry whose lock pins the image of `dated`."""
    key = describe_image(engine, dated()).reference.removeprefix("localhost/torchwheel/")
    made = Registry("registry.test/me", tmp_path / "images.lock.json")
    write_lock(made, ImagesLock({key: DIGEST}, {"debian:x-slim": OTHER}))
    return made


def ensure(engine, tmp_path, registry):
    cache = tmp_path / "cache"
    cache.mkdir(exist_ok=True)
    return ensure_image(engine, dated(), cache, Quiet(), registry)


def test_a_pinned_image_is_pulled_by_its_digest_and_nothing_else_is_needed(
    engine, tmp_path, registry
):
    (tmp_path / "state" / "label").write_text(describe_image(engine, dated()).digest)
    assert ensure(engine, tmp_path, registry).origin == "pulled"
    pulled = [line for line in said(tmp_path) if not line.startswith("image ")]
    reference = describe_image(engine, dated()).reference
    assert pulled == [
        f"pull --quiet registry.test/me/toolkit@{DIGEST}",
        f"tag registry.test/me/toolkit@{DIGEST} {reference}",
    ]
    assert ensure(engine, tmp_path, registry).origin == "kept"


def test_an_image_that_the_engine_refuses_is_not_built_in_its_place(engine, tmp_path, registry):
    (tmp_path / "state" / "refuse").touch()
    with pytest.raises(TorchwheelError, match=r"digest differs; expected the image that images\."):
        ensure(engine, tmp_path, registry)
    assert not [line for line in said(tmp_path) if line.startswith(("build", "tag"))]


def test_a_pin_of_another_recipe_is_refused(engine, tmp_path, registry):
    (tmp_path / "state" / "label").write_text("0123456789abcdef0123")
    with pytest.raises(TorchwheelError, match=r"of the recipe [0-9a-f]{16}, found 0123456789abcd"):
        ensure(engine, tmp_path, registry)
    assert not [line for line in said(tmp_path) if line.startswith("tag")]


def test_an_image_without_a_pin_is_built_from_the_days_packages(engine, tmp_path, registry):
    write_lock(registry, ImagesLock({}, {"debian:x-slim": OTHER}))
    with pytest.raises(TorchwheelError, match=rf"/debian/{DAY}/dists/x/InRelease: expected Debian"):
        ensure(engine, tmp_path, registry)


def test_without_a_registry_the_lock_pins_nothing_but_public_images(registry):
    alone = Registry(None, registry.lock_file)
    assert alone.pinned("localhost/torchwheel/toolkit:0") is None
    assert alone.pinned_base("debian:x-slim") == f"debian@{OTHER}"
    assert alone.pinned_base("debian:y-slim") == "debian:y-slim"
    missing = Registry("r.test/me", registry.lock_file.with_name("none"))
    assert missing.lock() == ImagesLock({}, {})


def test_the_digest_that_the_registry_has_is_what_a_push_gives(engine, tmp_path):
    local = "localhost/torchwheel/toolkit:0123"
    assert push_image(engine, "127.0.0.1:5000/me", local) == DIGEST
    tagged, pushed = said(tmp_path)
    assert tagged == f"tag {local} 127.0.0.1:5000/me/toolkit:0123"
    assert pushed.startswith("push --quiet --tls-verify=false --digestfile ")
    assert pushed.endswith(" 127.0.0.1:5000/me/toolkit:0123")
    silent = Engine("podman", {**engine.environ, "PUSHED": ""})
    with pytest.raises(TorchwheelError, match="expected its digest, found none"):
        push_image(silent, "127.0.0.1:5000/me", local)


LOCK = {"schema": 1, "images": {}, "bases": {}}
WANTED = 'expected "sha256:" and 64 digits of 0-9a-f'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "expected JSON"),
        ({"images": {}, "bases": {}}, "expected schema 1"),
        ({**LOCK, "images": {"a:0": 1}}, 'images["a:0"]: expected text, found 1; run `nox'),
        ({**LOCK, "images": {"a:0": "sha256:ab"}}, f'"a:0": {WANTED}, found "sha256:ab"; run `nox'),
        ({**LOCK, "bases": {"d:x": "latest --all"}}, 'found "latest --all"'),
    ],
)
def test_a_lock_that_is_malformed_is_one_line(tmp_path, content, says):
    file = tmp_path / "images.lock.json"
    file.write_text(content if content == "{" else json.dumps(content))
    with pytest.raises(MalformedError) as raised:
        Registry("r.test/me", file).pinned("localhost/torchwheel/a:0")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@given(
    st.dictionaries(st.text(), st.one_of(st.none(), st.text(), st.integers(), st.lists(st.none())))
)
def test_any_lock_is_read_or_refused_in_one_line(tmp_path_factory, images):
    file = tmp_path_factory.getbasetemp() / "any.lock.json"
    file.write_text(json.dumps({"schema": 1, "images": images, "bases": {}}))
    lock = None
    said = ""
    try:
        lock = Registry("r.test/me", file).lock()
    except TorchwheelError as error:
        said = str(error)
    assert said.isprintable()
    assert all(digest.startswith("sha256:") for digest in (lock.images.values() if lock else ()))


def test_a_push_pins_what_it_pushed_and_forgets_older_recipes(tmp_path, monkeypatch):
    registry = Registry("r.test/me", tmp_path / "images.lock.json")
    monkeypatch.setattr(images_module, "registry_of", lambda *_: registry)
    monkeypatch.setattr(images_module, "find_engine", lambda: Engine("podman", {}))
    monkeypatch.setattr(images_module, "cache_folder", lambda: tmp_path)
    built = BuiltImage("localhost/torchwheel/cuda-13.0-cp311:new", "new", origin="built")
    monkeypatch.setattr(images_module, "ensure_image", lambda *_: built)
    monkeypatch.setattr(images_module, "check_images", lambda *_: None)
    monkeypatch.setattr(images_module, "push_image", lambda *_: DIGEST)
    monkeypatch.setattr(images_module, "digest_of_base", lambda _, name: OTHER)
    write_lock(registry, ImagesLock({"cuda-13.0-cp311:old": OTHER, "rocm:old": OTHER}, {}))
    said = images_module.images(ROOT / "matrix.yaml", ["cu130-stable"], Quiet(), push=True)
    assert said.splitlines() == [
        "built   localhost/torchwheel/cuda-13.0-cp311:new",
        f"pushed  r.test/me/cuda-13.0-cp311:new {DIGEST}",
    ]
    lock = registry.lock()
    assert lock.images == {"cuda-13.0-cp311:new": DIGEST, "rocm:old": OTHER}
    assert lock.bases == {"debian:bullseye-slim": OTHER}
    written = registry.lock_file.read_bytes()
    images_module.images(ROOT / "matrix.yaml", ["cu130-stable"], Quiet(), push=True)
    assert registry.lock_file.read_bytes() == written
    monkeypatch.setattr(images_module, "registry_of", lambda *_: Registry(None, tmp_path / "x"))
    with pytest.raises(UsageError, match="images --push: expected a registry, found none; name"):
        images_module.images(ROOT / "matrix.yaml", ["cu130-stable"], Quiet(), push=True)


def test_the_variable_names_another_registry_than_the_matrix(tmp_path):
    matrix = load(ROOT / "matrix.yaml")
    containers = matrix.containers.model_copy(update={"registry": "r.test/a"})
    matrix = matrix.model_copy(update={"containers": containers})
    assert registry_of(matrix, tmp_path, {}).address == "r.test/a"
    assert registry_of(matrix, tmp_path, {"TORCHWHEEL_IMAGES": ""}).address == "r.test/a"
    named = registry_of(matrix, tmp_path, {"TORCHWHEEL_IMAGES": "127.0.0.1:5000/b"})
    assert named == Registry("127.0.0.1:5000/b", tmp_path / "docker" / "images.lock.json")
    for wrong in ("r.test", "https://r.test/a", "r.test/a:tag", "r.test/a --b", "--b/c d"):
        with pytest.raises(UsageError, match=r"TORCHWHEEL_IMAGES: .* is not a place in a registry"):
            registry_of(matrix, tmp_path, {"TORCHWHEEL_IMAGES": wrong})


def test_the_name_of_a_dated_image_needs_no_engine():
    """So that a job can ask for it before it has anything."""
    matrix = load(ROOT / "matrix.yaml")
    absent = Engine("podman", {"PATH": "/nowhere"})
    for variant in resolve(matrix):
        if variant.toolkit:
            image = image_of(matrix, variant, ROOT)
            assert len(describe_image(absent, image).digest) == 64
