"""A real pip installs from the index: over HTTP on loopback, and from the folder itself."""

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from torchwheel.index.serve import JSON, serve_in_background
from torchwheel.index.writer import IndexedWheel, build_index
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A binary of this machine's tag in cu130 and the pure wheel everywhere; demo needs helper."""
    files = {"demo/__init__.py": b"kind = 'pure'\n"}
    binary = {"demo/__init__.py": b"kind = 'binary'\n"}
    helper = make_wheel(tmp_path / "dist", name="helper", requires=())
    pure = make_wheel(tmp_path / "dist", files=files, requires=("helper",))
    local = make_wheel(
        tmp_path / "dist", version="1.0.0+cu130", files=binary, requires=("helper>=1",)
    )
    build_index(
        [
            IndexedWheel(helper, ("cpu", "cu130")),
            IndexedWheel(pure, ("cpu", "cu130")),
            IndexedWheel(local, ("cu130",)),
        ],
        tmp_path / "index",
    )
    return tmp_path / "index"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv" / "bin" / "python"


def pip_install(python: Path, address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--isolated", "--no-cache-dir", "--python", python]
    return subprocess.run(
        [*command, "install", "--index-url", address, "demo"],
        capture_output=True,
        text=True,
        check=False,
    )


def kind(python: Path) -> str:
    command = [python, "-c", "import demo, helper; print(demo.kind)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_pip_over_http(index: Path, python: Path) -> None:
    log: list[str] = []
    with serve_in_background(index, log.append) as address:
        done = pip_install(python, f"{address}/cu130/")
    assert done.returncode == 0, done.stderr
    assert kind(python) == "binary"
    asked = [line.split()[1] for line in log]
    name = "/files/demo-1.0.0%2Bcu130-py3-none-any.whl"
    assert asked.index(f"{name}.metadata") < asked.index(name)
    assert asked[0] == "/cu130/demo/"


def test_pip_from_the_folder(index: Path, python: Path) -> None:
    done = pip_install(python, f"{index.as_uri()}/cpu")
    assert done.returncode == 0, done.stderr
    assert kind(python) == "pure"


def test_pip_refuses_a_wheel_that_was_changed(index: Path, python: Path, tmp_path: Path) -> None:
    wheel = index / "files" / "demo-1.0.0-py3-none-any.whl"
    other = make_wheel(tmp_path / "other", requires=("helper",)).read_bytes()
    wheel.unlink()  # the file may be one with dist's
    wheel.write_bytes(other)
    with serve_in_background(index) as address:
        done = pip_install(python, f"{address}/cpu/")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def get(address: str, accept: str = "") -> tuple[str, bytes]:
    request = urllib.request.Request(address, headers={"Accept": accept})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.headers["Content-Type"], answer.read()


def test_a_folder_answers_as_asked(index: Path) -> None:
    page = index / "cpu" / "demo"
    with serve_in_background(index) as address:
        assert get(f"{address}/cpu/demo/", JSON) == (JSON, (page / "index.json").read_bytes())
        assert get(f"{address}/cpu/demo/")[0] == "text/html"
        assert get(f"{address}/", JSON) == ("text/html", (index / "index.html").read_bytes())
        for path in ("/files/x/", "/nothing/", "/../dist/", "/%2e%2e/dist/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(f"{address}{path}")
