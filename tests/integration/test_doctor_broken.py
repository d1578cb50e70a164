"""Broken set-ups, each made for real, and what the doctor says of it: the table of docs/doctor.md.

Stand-ins, where the real thing cannot be had: a torch that says another version of itself
(version.py), NVIDIA's management library, a g++ and an nvcc that say another release.
"""

import platform
import shutil
import subprocess
from pathlib import Path

import doctor_rows  # noqa: F401 - it fills ROWS
import doctor_rows_build  # noqa: F401
import pytest
from doctor_bench import RELEASE, ROWS, Bench

from torchwheel_runtime.machine import probe

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries are for x86_64"),
]

DOC = Path(__file__).parents[2] / "docs" / "doctor.md"
COMMON = frozenset(
    (
        *("no_torch", "old_torch", "cpu_torch", "cuda_major", "other_arch", "undefined"),
        *("shadowed", "half_removed", "no_compiler", "mixed"),
    )
)
"""The set-ups that most users have; the others are tried at night."""


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Where libraries are kept that take long to make."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def bench(tmp_path, made, request):
    return Bench(tmp_path, lambda: request.getfixturevalue("nvcc"), made)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            broken,
            id=(name := broken.make.__name__),
            marks=() if name in COMMON else pytest.mark.nightly,
        )
        for broken in ROWS
    ],
)
def test_row(broken, bench, request):
    """The verdict is the row that docs/doctor.md has; --update-goldens writes it there."""
    env = broken.prepare(bench)
    status, verdict = bench.setup.verdict(*broken.arguments, **env)
    told = [as_documented(str(verdict[key] or "-"), bench) for key in ("says", "fix")]
    line = f"| {broken.what} | {' | '.join(told)} |"
    if request.config.getoption("--update-goldens"):
        write_row(broken.what, line)
    assert (status, line) == (broken.status, rows_of(DOC.read_text()).get(broken.what))


def test_the_table_has_these_rows():
    assert list(rows_of(DOC.read_text())) == [broken.what for broken in ROWS]


def as_documented(text: str, bench: Bench) -> str:
    """What differs from machine to machine becomes what the documentation shows."""
    gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True)
    for here, shown in {
        str(bench.setup.site): "SITE",
        str(bench.setup.folder): "/home/me",
        str(bench.nvcc().parents[1]): "/opt/cuda-13.0",
        shutil.which("g++") or "g++": "/usr/bin/g++",
        RELEASE: "2.13.0",
        platform.python_version(): "3.12.3",
        f"gcc {gcc.stdout.strip()}": "gcc 12.2.0",
        f"glibc {probe.glibc_version()}": "glibc 2.36",
        "|": "\\|",
    }.items():
        text = text.replace(here, shown)
    return text


def rows_of(doc: str) -> dict[str, str]:
    """The table's lines by what is broken, in its order."""
    table = doc.partition("<!-- set-ups -->")[2].partition("<!-- end -->")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines[1:]}


def write_row(what: str, line: str) -> None:
    """Put a row in its place; rows that no set-up has any more go."""
    doc = DOC.read_text()
    rows = {**rows_of(doc), what: line}
    head, _, rest = doc.partition("<!-- set-ups -->")
    tail = rest.partition("<!-- end -->")[2]
    title = "| Set-up | What the doctor says | What fixes it |\n|---|---|---|\n"
    body = "".join(f"{rows[broken.what]}\n" for broken in ROWS if broken.what in rows)
    DOC.write_text(f"{head}<!-- set-ups -->\n{title}{body}<!-- end -->{tail}")
