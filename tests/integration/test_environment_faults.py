"""Folders that cannot be used, and odd environments, through the command line: one line each."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from checkout import python_path

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
USER = 12345
"""An ordinary user, without an entry in the table of users."""
OTHER = 12346


class Driver:
    """Runs the command line in forks of one process (faultdriver.py), as an ordinary user."""

    def __init__(self, process: "subprocess.Popen[str]", place: Path) -> None:
        self.process = process
        self.place = place
        self.project = place / "tiny"
        self.home = place / "home"

    def __call__(self, *arguments: object, **env: str | None) -> tuple[int, str, str]:
        """The exit status, the output and the errors of a call in the folder of a project."""
        call = {
            "arguments": list(map(str, arguments)),
            "env": {
                "HOME": str(self.home),
                "TORCHWHEEL_CACHE": None,
                "XDG_CACHE_HOME": None,
                **env,
            },
            "cwd": str(self.project),
            "user": USER if os.geteuid() == 0 else 0,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the driver has ended"
        status, output, errors = json.loads(answer)
        return status, output, errors


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user reaches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def give(path: Path) -> None:
    """Make the ordinary user the owner."""
    if os.geteuid() == 0:
        for entry in (path, *path.rglob("*")):
            os.chown(entry, USER, USER, follow_symlinks=False)


@pytest.fixture(scope="module")
def run() -> Iterator[Driver]:
    with public_folder() as place:
        shutil.copytree(HERE / "tiny", place / "tiny")
        with (place / "tiny" / "matrix.yaml").open("a") as matrix:
            matrix.write("runners: {linux_x86_64: {build: [x], cuda: [y]}, any: {build: [x]}}\n")
        (place / "home").mkdir()
        give(place)
        process = subprocess.Popen(
            [sys.executable, HERE.parent / "faultdriver.py"],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": python_path(),
                "TMPDIR": "/tmp",  # noqa: S108 - every user may write there
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        driver = Driver(process, place)
        if driver("matrix")[0]:
            pytest.skip("other users do not reach this tree")
        yield driver
        process.stdin.close()
        process.wait(10)


def read_only(place: Path) -> Path:
    (place / "x").mkdir(mode=0o555)
    return place / "x"


def absent(place: Path) -> Path:
    (place / "locked").mkdir(mode=0o555)
    return place / "locked" / "x"


def a_file(place: Path) -> Path:
    (place / "x").touch()
    return place / "x"


def below_a_file(place: Path) -> Path:
    return a_file(place) / "y"


def a_ring(place: Path) -> Path:
    (place / "x").symlink_to("y")
    (place / "y").symlink_to("x")
    return place / "x"


def too_long(place: Path) -> Path:
    return place / ("x" * 5000)


def anothers(place: Path) -> Path:
    (place / "x").mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(place / "x", OTHER, OTHER)
    else:
        (place / "x").chmod(0)
    return place / "x"


def on_a_read_only_disk(place: Path) -> Path:
    (place / "x").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place / "x")]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        (place / "x").chmod(0o555)  # in a container without the right to mount
    return place / "x" / "y"


STATES = (read_only, absent, a_file, below_a_file, a_ring, too_long, anothers, on_a_read_only_disk)
CALLS: Mapping[str, tuple[str, ...]] = {
    # The variable that names the folder X, and the arguments.
    "cache list": ("TORCHWHEEL_CACHE", "cache", "list"),
    "cache clean": ("TORCHWHEEL_CACHE", "cache", "clean"),
    "cache of wheels": ("TORCHWHEEL_CACHE", "wheels", "pure", "--dist", "GOOD"),
    "cache of toolkit": ("TORCHWHEEL_CACHE", "toolkit", "cu130"),
    "home list": ("HOME", "cache", "list"),
    "home of wheels": ("HOME", "wheels", "pure", "--dist", "GOOD"),
    "dist": ("", "wheels", "pure", "--dist", "X"),
    "resume": ("", "wheels", "--resume", "--dist", "X"),
    "new": ("", "new", "thing", "--folder", "X"),
    "matrix": ("", "matrix", "--matrix", "X"),
    "assemble": ("", "assemble", "X", "--selection", "pure"),
    "assemble out": ("", "assemble", "GOOD", "--selection", "pure", "--out", "X"),
    "earlier": ("", "assemble", "GOOD", "--selection", "pure", "--earlier", "X"),
    "check": ("", "check", "X"),
    "index": ("", "index", "serve", "X"),
    "index build": ("", "index", "build", "X", "--address", "x", "--yanked", "GOOD"),
    "github output": ("", "matrix", "--github", "--output", "X"),
    "cache of build": ("TORCHWHEEL_CACHE", "build", "GOOD"),
    "build": ("", "build", "X"),
    "cache of kernels": ("TORCHWHEEL_CACHE", "kernels", "cu130"),
    "kernels": ("", "kernels", "cu130", "--out", "X"),
    "cache of images": ("TORCHWHEEL_CACHE", "images", "cu130-stable"),
    "cache of smoke": ("TORCHWHEEL_CACHE", "smoke", "GOOD"),
    "smoke": ("", "smoke", "X"),
    "cache of compat": ("TORCHWHEEL_CACHE", "compat", "GOOD", "--keep"),
    "compat": ("", "compat", "X"),
    "cache of doctor": ("TORCHWHEEL_CACHE", "doctor"),
    "adopt": ("", "adopt", "X"),
    "adopt into": ("", "adopt", ".", "--into", "X", "--source", "tiny==1.0"),
    "install": ("", "install", "demo", "--dry-run", "--index", "file://X"),
    "inspect": ("", "inspect", "X"),
    "verify": ("", "verify", "X", "--repository", "https://github.com/o/n"),
}


def problem_of(status: int, output: str, errors: str) -> str | None:
    """Why the end of a call is not as promised; None if it is."""
    if "Traceback" in errors + output or status not in (0, 1, 2):
        return f"status {status}: {errors[-300:]}"
    lines = [line for line in errors.splitlines() if line.startswith("torchwheel: ")]
    if len(lines) > 1 or (status and not lines and not output):
        return f"status {status} and {len(lines)} lines: {errors}"
    return errors if "a fault of torchwheel" in errors else None


def end_of(run: Driver, call: str, state: Callable[[Path], Path]) -> str | None:
    """The problem of a call with a folder in that state."""
    variable, *arguments = CALLS[call]
    with public_folder() as place:
        folder = state(place)
        good = place / "good"
        good.mkdir()
        for path in (place, *place.rglob("*")):
            if os.geteuid() == 0 and path.lstat().st_uid == 0 and not path.is_mount():
                os.chown(path, USER, USER, follow_symlinks=False)
        known = {"X": str(folder), "GOOD": str(good), "file://X": f"file://{folder}"}
        words = [known.get(word, word) for word in arguments]
        try:
            return problem_of(*run(*words, **({variable: str(folder)} if variable else {})))
        finally:
            if (place / "x").is_mount():
                subprocess.run(["umount", place / "x"], check=True)


def states_of(call: str) -> tuple[Callable[[Path], Path], ...]:
    """Every state for the output and the cache, and two for another call: in turn, so all come."""
    if call in {"dist", "cache list"}:
        return STATES
    at = list(CALLS).index(call)
    return STATES[at % len(STATES)], STATES[(at + 3) % len(STATES)]


@pytest.mark.parametrize(
    "states",
    [
        pytest.param(states_of, id="some"),
        pytest.param(lambda _: STATES, id="every", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_a_folder_that_cannot_be_used_is_one_line(call, states, run):
    problems = {
        state.__name__: problem for state in states(call) if (problem := end_of(run, call, state))
    }
    assert not problems


@pytest.mark.parametrize("home", [None, ""])
@pytest.mark.parametrize("arguments", [("cache", "list"), ("wheels", "pure", "--dist", "other")])
def test_a_user_without_a_home_folder(run, home, arguments):
    if os.geteuid() != 0:
        pytest.skip("only root can be a user that has no entry in the table of users")
    status, output, errors = run(*arguments, HOME=home)
    assert problem_of(status, output, errors) is None
    if home is None:
        assert "set TORCHWHEEL_CACHE to a folder of your own" in errors


ODD_PATHS = ("~/x", "~nosuchuser/x", "relative", "/proc", "/proc/x", "a\nb")
ODD = {
    **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TORCHWHEEL_CACHE", "TMPDIR"), ODD_PATHS),
    "MAX_JOBS": ("-1", "\N{SUPERSCRIPT TWO}", "1" * 5000),
    "COLUMNS": ("-1", "\N{SUPERSCRIPT TWO}", "1" * 5000),
}
USABLE = ("~/x", "a\nb")
ODD_CALLS = (
    *("cache list", "matrix", "wheels pure --dist other", "kernels cu130 --out other"),
    "install demo --dry-run --index file:///tmp/none",
)


@pytest.mark.parametrize("variable", ODD)
def test_a_variable_with_an_odd_value_is_one_line(run, variable):
    problems = {
        (call, value[:20]): problem
        for call in ODD_CALLS
        for value in ODD[variable]
        # In a cache that can be used, it would make an environment to try the wheel in.
        if not (variable == "TORCHWHEEL_CACHE" and call.startswith("wheels") and value in USABLE)
        if (problem := problem_of(*run(*call.split(), **{variable: value})))
    }
    assert not problems


ODD_ADDRESSES = (
    *("http://[::1", "http://localhost:99999/", "http://localhost:port/", "http://a..b/"),
    *("file:///tmp/%00/", "file:///proc/self/mem", "https://ex\u2100mple.com/", "http://u\x1b@h/"),
)


@pytest.mark.parametrize("address", ODD_ADDRESSES)
def test_an_odd_address_is_one_line(run, address):
    calls = (
        ("install", "demo", "--dry-run", "--index", address),
        ("index", "build", "none", "--address", address, "--yanked", "matrix.yaml"),
        ("verify", "demo.whl", "--repository", address),
        ("build", ".", "--cache", address),
    )
    problems = [problem for call in calls if (problem := problem_of(*run(*call)))]
    assert not problems


def shell(text: str, folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell, in which tw is the command line."""
    source = python_path()
    return subprocess.run(
        ["sh", "-c", f'tw() {{ "{sys.executable}" -m torchwheel "$@"; }}; {text}'],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": source, "HOME": str(folder), **env},
        capture_output=True,
        check=False,
    )


LOST = "torchwheel: standard output: expected"


@pytest.mark.parametrize(
    ("text", "status", "errors"),
    [
        ("tw matrix >&-", 1, f"{LOST} a place to write to, found it closed; open it\n"),
        ("tw matrix >/dev/full", 1, f"{LOST} space on the disk, found none left; free some"),
        ("tw --help >/dev/full", 1, f"{LOST} space on the disk, found none left; free some"),
        ("tw matrix --matrix none >&- 2>&-", 2, ""),
        ("tw matrix --matrix none 2>/dev/full", 2, ""),
        ("(tw matrix; echo $? >&2) | true", 0, "1\n"),
        ("tw matrix <&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written(tiny, text, status, errors):
    done = shell(text, tiny)
    assert done.returncode == status
    assert done.stderr.decode().startswith(errors)
    assert done.stderr.count(b"\n") == (1 if errors else 0)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("wheels pure --dist out", "{tiny}/out/.torchwheel"),
        pytest.param("toolkit cu130", "{tiny}/cache/toolkits", marks=pytest.mark.nightly),
    ],
)
def test_a_limit_on_the_size_of_files_is_one_line(tiny, call, place):
    done = shell(f"ulimit -f 0; tw {call}", tiny, TORCHWHEEL_CACHE=str(tiny / "cache"))
    (line,) = (line for line in done.stderr.decode().splitlines() if line.startswith("torchwheel"))
    assert done.returncode == 1
    assert line.startswith(
        f"torchwheel: {place.format(tiny=tiny)}: expected room below the limit on the size of a "
        "file, found a larger file; raise it with `ulimit -f unlimited`"
    )


ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


@pytest.mark.parametrize(
    "env", [ASCII, pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.nightly)]
)
def test_an_ascii_terminal_loses_no_words(tiny, env):
    shutil.copy(tiny / "matrix.yaml", tiny / "größe.yaml")
    calls = (
        "tw matrix --matrix größe.yaml; tw matrix größe; tw wheels --help; tw new a --folder größe"
    )
    done = shell(calls, tiny, **env)
    text = done.stdout.decode("ascii", "surrogateescape") + done.stderr.decode(
        "ascii", "surrogateescape"
    )
    assert "Traceback" not in text
    assert "usage: torchwheel wheels" in text
    assert re.search(r'selection "gr(\\xf6\\xdf|\\udcc3\\udcb6\\udcc3\\udc9f)e"', text)
    assert "cu130-stable" in text
    assert re.search(rb"gr(\\xf6\\xdf|\xc3\xb6\xc3\x9f)e/a: written", done.stdout)


BAD_FOLDERS = (b"%(x)s", b"$HOME", b"{HOME}", b"a\nb", b"a\xffb")


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_a_folder_of_temporary_files_that_setuptools_would_change_is_refused(tiny, tmp_path, name):
    folder = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))  # noqa: PTH118 - bytes
    Path(folder).mkdir()
    env = {"TMPDIR": folder, "TORCHWHEEL_CACHE": str(tmp_path / "cache")}
    done = shell("tw wheels pure", tiny, **env)
    (line,) = (line for line in done.stderr.decode().splitlines() if line.startswith("torchwheel"))
    assert done.returncode == 2
    assert line.startswith(f"torchwheel: TMPDIR={tmp_path}/")
    assert "expected a path that setuptools takes as it is, found the character" in line
    assert not list((tiny / "dist").glob("*.whl"))
