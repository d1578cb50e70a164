"""Images in a real registry on loopback, and a Debian of one day."""

import re
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path

import pytest

from loopback import answering
from torchwheel.image.images import describe_image, ensure_image
from torchwheel.image.recipes import BaseImage, Image, read_recipe
from torchwheel.image.registry import ImagesLock, Registry, push_image, write_lock
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError

pytestmark = pytest.mark.containers

ROOT = Path(__file__).parents[2]
DAY = "20010101T000000Z"  # of no base image that somebody has


def image(content):
    return Image(f"hello-{uuid.uuid4().hex[:8]}", "FROM scratch\nCOPY hello /\n", {}, content, {})


@pytest.fixture
def server(tmp_path):
    """The address of a registry and the folder of its content."""
    program = shutil.which("docker-registry") or shutil.which("registry")
    if program is None:
        pytest.skip("no registry: `apt-get install docker-registry`")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path / "registry"
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with subprocess.Popen(
        [program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"127.0.0.1:{port}/me", folder
        process.kill()


@pytest.fixture
def pinned(engine, server, tmp_path, monkeypatch):
    """An image that is pushed, pinned and gone from here; its registry, and its local name."""
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    address, _ = server
    registry = Registry(address, tmp_path / "images.lock.json")
    made = image({"hello": "hello\n"})
    try:
        built = ensure_image(engine, made, tmp_path / "cache", Quiet(), registry)
    except TorchwheelError as error:
        pytest.skip(str(error))
    assert built.origin == "built"
    content = engine.content_of(built.reference)
    digest = push_image(engine, address, built.reference)
    key = built.reference.removeprefix("localhost/torchwheel/")
    write_lock(registry, ImagesLock({key: digest}, {}))
    remove(engine, built.reference, f"{address}/{key}")
    yield made, registry, built.reference, content, digest
    remove(engine, built.reference, f"{address}/{made.name}@{digest}")


def remove(engine, *references):
    for reference in references:
        engine.succeeds(["rmi", "--force", reference])


def blob(folder, digest):
    hexadecimal = digest.partition(":")[2]
    found = folder / "docker/registry/v2/blobs/sha256" / hexadecimal[:2] / hexadecimal / "data"
    assert found.is_file()
    return found


def test_an_image_is_pulled_by_its_digest_and_is_the_one_that_was_pushed(engine, pinned, tmp_path):
    made, registry, reference, content, _ = pinned
    assert engine.content_of(reference) is None
    pulled = ensure_image(engine, made, tmp_path / "cache", Quiet(), registry)
    assert (pulled.origin, pulled.reference) == ("pulled", reference)
    assert engine.content_of(reference) == content


def test_other_content_under_the_digest_is_refused(engine, pinned, server, tmp_path):
    made, registry, reference, _, digest = pinned
    manifest = blob(server[1], digest)
    manifest.write_text(manifest.read_text().replace("application", "Application", 1))
    with pytest.raises(TorchwheelError, match=r"expected the image that images\.lock\.json pins"):
        ensure_image(engine, made, tmp_path / "cache", Quiet(), registry)
    assert engine.content_of(reference) is None, "nothing is built in its place"


def test_the_pin_of_another_image_is_refused(engine, pinned, tmp_path):
    made, registry, reference, _, digest = pinned
    other = image({"hello": "another\n"})
    name = made.name
    forged = describe_image(engine, Image(name, other.recipe, {}, other.files, {})).reference
    write_lock(registry, ImagesLock({forged.removeprefix("localhost/torchwheel/"): digest}, {}))
    with pytest.raises(TorchwheelError, match=r"expected an image of the recipe \w+, found \w+;"):
        ensure_image(
            engine,
            Image(name, other.recipe, {}, other.files, {}),
            tmp_path / "cache",
            Quiet(),
            registry,
        )
    assert engine.content_of(forged) is None
    assert engine.content_of(reference) is None


def test_a_registry_that_does_not_answer_is_one_line(engine, pinned, tmp_path):
    made, registry, *_ = pinned
    gone = Registry("127.0.0.1:9/me", registry.lock_file)
    with pytest.raises(TorchwheelError) as raised:
        ensure_image(engine, made, tmp_path / "cache", Quiet(), gone)
    assert "\n" not in str(raised.value)
    assert "TORCHWHEEL_IMAGES and containers.registry empty" in str(raised.value)


def sources_of(engine, reference):
    script = "grep -rh . /etc/apt/sources.list /etc/apt/sources.list.d || true"
    return engine.call(["run", "--rm", reference, "sh", "-c", script], "reading the sources")


@pytest.mark.nightly
def test_a_debian_of_one_day_takes_its_packages_from_the_service(engine, base, tmp_path):
    """The stand-in of the service has one day, which is today's archive."""
    local = base.local if engine.content_of(base.local) else base.public
    sources = sources_of(engine, local)
    found = re.search(r"(https?://\S+?)/debian/? ", sources)
    if found is None:
        pytest.skip(f"no address of Debian's archive in the sources of {local}")
    asked = []

    def answer(path):
        asked.append(path)
        kind, _, rest = path.lstrip("/").partition(f"/{DAY}/")
        headers = {"Location": f"{found[1]}/{kind}/{rest}", "Content-Length": "0"}
        return 302 if rest else 404, headers, b""

    with answering(answer) as service:
        dated = BaseImage("bullseye", snapshot=DAY)
        engine.call(["tag", local, dated.local], "naming the base")
        (tmp_path / "cache").mkdir()
        made = Image(
            f"debian-{uuid.uuid4().hex[:8]}",
            read_recipe(
                ROOT
                / "pkg"
                / "torchwheel"
                / "src"
                / "torchwheel"
                / "data"
                / "docker"
                / "debian.Dockerfile"
            ),
            {"SNAPSHOT": DAY},
            {},
            {"BASE_IMAGE": dated},
            mirrors={"SNAPSHOTS": service},
        )
        try:
            built = ensure_image(engine, made, tmp_path / "cache", Quiet())
            sources = sources_of(engine, built.reference)
            assert f"{service}/debian/{DAY}/ bullseye main" in sources
            assert found[1] not in sources
            assert f"/debian/{DAY}/dists/bullseye/InRelease" in asked
        finally:
            remove(engine, f"localhost/torchwheel/{made.name}", dated.local)
            remove(engine, describe_image(engine, made).reference)
