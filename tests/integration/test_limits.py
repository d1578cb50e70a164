"""No hostile file costs a command more than 1 GiB of memory or a minute, or ends in a traceback."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hostile
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

MEMORY = 1 << 30
SECONDS = 60
# By a small process in between: a new program's peak begins with the memory of what starts it.
MEASURE = """
import json, os, sys, time
began = time.monotonic()
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
found = usage.ru_maxrss, time.monotonic() - began, os.waitstatus_to_exitcode(status)
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""
MATRIX = """\
schema: 1
project: {name: demo}
abis: {pure: {torch: "2.6"}}
toolkits: {}
torch: {}
platforms: [linux_x86_64]
selections: {release: [pure]}
runners: {linux_x86_64: {build: [ubuntu-24.04]}, any: {build: [ubuntu-24.04]}}
smoke: {tests: tests/smoke, torch: "2.13.0"}
gates: {max_size_mib: 8}
"""
LARGE = {
    # As large as the unit tests are small.
    "members_that_overlap": {"count": 460, "hashed": False},  # they claim 7.8 GB
    "zeros_with_sizes_of_zip64": {"size": 512 << 20},
}


UNPACK = """
import sys
from pathlib import Path
from torchwheel_runtime.console import run_command
from torchwheel.inspect.sdist import unpack
sys.exit(run_command("unpack", lambda: unpack(Path(sys.argv[1]), Path(sys.argv[2])) and 0))
"""
READ_TOML = """
import sys
from pathlib import Path
from torchwheel_runtime.console import run_command
from torchwheel.text_files import read_toml
sys.exit(run_command("read", lambda: read_toml(Path(sys.argv[1])) and 0))
"""
ROOM = 1 << 20
# As much as fits, and as much memory as it can take: each is right TOML.
LARGE_TOML = {
    "keys of many parts": "".join(f"a{n}.{'.'.join('b' * 13)}=1\n" for n in range(30_000)),
    "tables of many parts": "".join(f"[a{n}.{'.'.join('b' * 13)}]\n" for n in range(30_000)),
    "tables": "".join(f"[a{n}]\n" for n in range(110_000)),
    "lists": "a = [\n" + "[],\n" * 209_000 + "]\n\n",
}


def run(folder: Path, *arguments: object, script: str = "") -> tuple[int, str]:
    """The status and the output of `torchwheel ARGUMENTS`, which must stay within its budget."""
    program = ["-c", script] if script else ["-m", "torchwheel"]
    command = [sys.executable, *program, *map(str, arguments)]
    measured = [sys.executable, "-c", MEASURE, str(folder / "usage.json"), *command]
    done = subprocess.run(
        measured, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    kib, seconds, status = json.loads((folder / "usage.json").read_text())
    assert kib << 10 < MEMORY
    assert seconds < SECONDS
    assert "Traceback" not in done.stdout
    return status, done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every hostile wheel, and a wheel around every hostile library, by name."""
    root = tmp_path_factory.mktemp("hostile")
    made = {}
    for name, case in hostile.WHEELS.items():
        (root / name).mkdir()
        made[name] = case.make(root / name, **LARGE.get(name, {}))
    for name in hostile.LIBRARIES:
        made[name] = hostile.wheel_with(root / name, name)
    return made


def test_check(tmp_path: Path, wheels: dict[str, Path]) -> None:
    status, output = run(tmp_path, "check", *wheels.values())
    assert status == 1
    assert output.count("FAILED") > len(wheels)
    for wheel in wheels.values():
        assert wheel.name in output


def test_inspect(tmp_path: Path, wheels: dict[str, Path]) -> None:
    status, output = run(tmp_path, "inspect", *wheels.values())
    assert status == 1
    for wheel in wheels.values():
        assert wheel.name in output


def test_assemble(tmp_path: Path, wheels: dict[str, Path]) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(MATRIX)
    folders = [path.parent for path in wheels.values()]
    status, output = run(
        tmp_path, "assemble", "--matrix", matrix, "--out", tmp_path / "out", *folders
    )
    assert status == 1
    for case in hostile.WHEELS.values():
        assert case.says in output or case.says == "is no regular file"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "limit", [("--seconds", "3"), pytest.param((), marks=pytest.mark.nightly, id="of itself")]
)
def test_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, ...]
) -> None:
    """Packages are installed that hold a hostile library, or metadata."""
    site = tmp_path / "site"
    libraries = {name: make() for name, (make, _) in hostile.LIBRARIES.items()} | hostile.DEFINING
    files = {f"demo/{name}.so": library for name, library in libraries.items()}
    install(site, make_wheel(tmp_path, files={"demo/__init__.py": b"", **files}))
    endless, tags = (
        install(site, make_wheel(tmp_path / name, name=name)) for name in ("endless", "tags")
    )
    (endless / "RECORD").unlink()
    (endless / "RECORD").symlink_to("/dev/zero")
    part = ".".join(f"a{number}" for number in range(300))
    (tags / "WHEEL").write_text(f"Root-Is-Purelib: true\nTag: {part}-{part}-{part}\n")
    hung = b"import time\nwhile True: time.sleep(1)\n"
    for name in ("hangs", "hangs_too"):
        install(site, make_wheel(tmp_path / name, name=name, files={f"{name}/__init__.py": hung}))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path]))
    # The doctor adds up the files of the user's own cache, which are many.
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    status, output = run(tmp_path, "doctor", "--verbose", "demo", "endless", "tags")
    assert status == 1
    for name in hostile.LIBRARIES:
        assert name in output
    status, output = run(tmp_path, "doctor", "hangs", "hangs_too", *limit)
    assert status == 1
    ends = "import hangs did not end in"
    assert f"{ends} {limit[1] if limit else 35} s" in " ".join(output.split())
    os.mkfifo(tags / "entry_points.txt")  # which the import of any torch reads
    for name in ("hangs", "hangs_too"):
        shutil.rmtree(site / name)
        shutil.rmtree(site / f"{name}-1.0.0.dist-info")
    for names in ((),) if limit else ((), ("tags",)):
        status, output = run(tmp_path, "doctor", *names, *limit)
        words = " ".join(output.split())
        assert status == 1
        assert '"tags-1.0.0.dist-info/entry_points.txt" is no regular file' in words
        assert f"rm -r {tags}" in words.replace("` ", "")
        assert "force-reinstall torch" not in words


@pytest.mark.parametrize("name", hostile.SDISTS)
def test_an_sdist(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "demo-1.0.tar.gz"
    archive.write_bytes(hostile.sdist(name))
    (tmp_path / "unpacked").mkdir()
    status, output = run(tmp_path, archive, tmp_path / "unpacked", script=UNPACK)
    assert status == 1
    assert hostile.SDISTS[name][1] in output


SLOW_TOML = {"keys of many parts", "tables"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name in SLOW_TOML else ())
        for name in LARGE_TOML
    ],
)
def test_a_pyproject(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(LARGE_TOML[name][:ROOM].rpartition("\n")[0])
    status, output = run(tmp_path, path, script=READ_TOML)
    assert (status, output) == (0, "")


def install(site: Path, wheel: Path) -> Path:
    """Unpack a wheel; the folder of its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site / f"{wheel.name.split('-', maxsplit=1)[0]}-1.0.0.dist-info"
