"""Files are looked up on an index on loopback that has no metadata beside its wheels."""

import hashlib
import os

import pytest

from loopback import Handler, serving
from torchwheel_runtime import pip, process
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.process import ProcessResult
from torchwheel_runtime.toolkit.index import find_files
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

NOISE = os.urandom(1 << 20)
PLATFORM = "linux_x86_64"


class Index(Handler):
    wheel = b""
    sent: list[int] = []

    def respond(self):
        if self.command == "HEAD":
            self.of_wheel(200, b"", len(self.wheel))
            return
        if self.path.endswith("/"):
            name, digest = "demo-1.0.0-py3-none-any.whl", hashlib.sha256(self.wheel).hexdigest()
            page = f'<a href="/{name}#sha256={digest}">{name}</a>'.encode()
            self.answer(200, page, content_type="text/html", content_length=len(page))
            return
        span = self.headers.get("Range", "bytes=0-").removeprefix("bytes=")
        first, _, last = span.partition("-")
        body = self.wheel[int(first) : int(last) + 1 if last else None]
        self.sent.append(len(body))
        self.of_wheel(206 if "Range" in self.headers else 200, body, len(body))

    def of_wheel(self, status: int, body: bytes, size: int):
        self.answer(status, body, accept_ranges="bytes", content_length=size)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The handler of an index with a wheel of a megabyte; pip asks that index alone."""
    wheel = make_wheel(tmp_path, files={"demo/noise.bin": NOISE}, claims=None).read_bytes()
    handler = type("Handler", (Index,), {"wheel": wheel, "sent": []})
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with serving(handler) as address:
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
        yield handler


def test_a_lookup_reads_the_metadata_in_a_wheel_and_leaves_the_rest(served):
    (found,) = find_files(["demo==1.0.0"], PLATFORM)
    assert found.sha256 == hashlib.sha256(served.wheel).hexdigest()
    assert found.url.endswith("/demo-1.0.0-py3-none-any.whl")
    assert 0 < sum(served.sent) < len(served.wheel) / 4


@pytest.mark.parametrize(("status", "runs"), [(0, 1), (1, 1), (2, 2)])
def test_a_pip_without_the_feature_is_run_again_without_it(monkeypatch, status, runs):
    calls = []

    def run(command, **_):
        calls.append(command)
        return ProcessResult(status if len(calls) == 1 else 0, "", "ERROR: no such feature")

    monkeypatch.setattr(process, "run", run)
    try:
        pip.run_pip(["install", "demo"], "looking up demo", feature="fast-deps")
    except TorchwheelError:
        assert status == 1
    assert [command[-1] for command in calls] == ["--use-feature=fast-deps", "demo"][:runs]
