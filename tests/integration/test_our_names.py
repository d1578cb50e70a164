"""Our names on an index where somebody else has registered them: none of theirs is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchwheel.index.front import install_command
from torchwheel.index.serve import serve_in_background
from torchwheel.index.writer import IndexedWheel, build_index
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

# Names that no index has.
PROJECT, HELPER, OTHER = "kernels_of_nobody", "torchwheel_of_nobody", "other_of_nobody"


def later_build(members: dict[str, bytes]) -> None:
    """Gives a wheel a build tag, which installers prefer to none."""
    (name,) = (one for one in members if one.endswith("/WHEEL"))
    members[name] = members[name].replace(b"Tag: 9-", b"Build: 9\nTag: ")


LATER_BUILD = {"tag": "9-py3-none-any", "bend": later_build}
WANTED = f"{PROJECT}==1.0.0"


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """Our index, and one like PyPI where somebody offers our names: later builds and versions."""
    folder = tmp_path_factory.mktemp("names")
    needs = (f"{HELPER}>=0.1,<0.2", OTHER)

    def made(where, *wheels):
        (folder / where).mkdir()
        paths = [
            make_wheel(
                folder / where,
                claims=None,
                files={f"{wheel['name']}/__init__.py": f"OF = {where!r}\n".encode()},
                **wheel,
            )
            for wheel in wheels
        ]
        build_index([IndexedWheel(path, ("cpu",)) for path in paths], folder / where / "index")

    made(
        "ours",
        {"name": PROJECT, "version": "1.0.0", "requires": needs},
        {"name": HELPER, "version": "0.1.0", "requires": (OTHER,)},
    )
    made(
        "public",
        {"name": PROJECT, "version": "1.0.0", "requires": needs, **LATER_BUILD},
        {"name": HELPER, "version": "0.1.0", "requires": (), **LATER_BUILD},
        {"name": HELPER, "version": "0.1.9", "requires": ()},
        {"name": OTHER, "version": "3.0", "requires": ()},
    )
    with (
        serve_in_background(folder / "ours" / "index") as ours,
        serve_in_background(folder / "public" / "index") as public,
    ):
        yield f"{ours}/cpu/", f"{public}/cpu/"


@pytest.fixture
def install(tmp_path, indexes):
    """Runs a command in an environment whose usual index is the public one; what is then there."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env = {
        **clean,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PIP_INDEX_URL": indexes[1],
        "PIP_CONFIG_FILE": os.devnull,
    }

    def run(command: str) -> list[str]:
        """Whose the project, the helper and the other package are that it installs."""
        subprocess.run(["bash", "-c", command], check=True, env=env, cwd=tmp_path)
        script = (
            f"import {PROJECT}, {HELPER}, {OTHER}; print({PROJECT}.OF, {HELPER}.OF, {OTHER}.OF)"
        )
        done = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
        return done.stdout.split()

    return run


@pytest.mark.nightly
def test_an_extra_index_is_no_protection(install, indexes):
    """What was printed before: pip takes the later build or version, whoever offers it."""
    found = install(f'pip install --extra-index-url {indexes[0]} "{WANTED}"')
    assert found == ["public", "public", "public"]


def test_the_printed_command_takes_ours_and_the_rest_from_the_usual_index(install, indexes):
    command = install_command(indexes[0], WANTED, [OTHER])
    assert install(command) == ["ours", "ours", "public"]


def test_what_is_printed_and_documented_asks_no_index_for_torchwheel_by_name():
    """A requirement on torchwheel is a file with a hash, or of one index alone."""
    root = Path(__file__).parents[2]
    places = [*(root / "pkg").rglob("*.py"), *root.glob("*.md")]
    places += [*(root / "docs").glob("*.md"), *(root / "pkg" / "torchwheel").rglob("*.in")]
    places += [*(root / ".github").rglob("*.yml"), root / "noxfile.py"]
    assert len(places) > 200
    wrong = []
    for path in places:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            command = line.partition("pip install")[2].partition("`")[0]
            bare = any(
                word.strip("\"'").partition("[")[0].rstrip("0123456789.=<>,") == "torchwheel"
                for word in command.split()
            )
            required = re.search(r'requires = \[[^#\n]*"torchwheel', line)
            if required or (bare and "--index-url" not in line):
                wrong.append(f"{path.relative_to(root)}:{number}: {line.strip()}")
    assert not wrong
