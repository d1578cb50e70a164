"""An upload to the package index that fails is completed when its job runs again."""

import functools
import hashlib

import pytest

from rehearsal.forge import RequestFault
from rehearsal.pypi import REFUSED, index_server
from rehearsal.runs import Lost
from rehearsal.toy import CHECKOUT, PYPI, toy

PATH = ".github/workflows/w.yml"
STEP = "Publish what PyPI takes"
ONE, TWO = "one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"
MAKE = """
import pathlib, random, zipfile
pathlib.Path("release/pypi").mkdir(parents=True)
for name in "one", "two":
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/data": random.Random(name).randbytes(1_000_000),
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(f"release/pypi/{name}-1.0-py3-none-any.whl", "w") as wheel:
        for file, data in files.items():
            wheel.writestr(zipfile.ZipInfo(file), data)
"""
at_night = functools.partial(pytest.param, marks=pytest.mark.nightly)
FIVE = 5
"""twine sends a file that often while the server fails."""


STEPS = (
    f"{{uses: '{CHECKOUT}'}}",
    "{run: python3 make.py}",
    f"{{name: {STEP}, uses: '{PYPI}', with: {{packages-dir: release/pypi, skip-existing: true}}}}",
)
WORKFLOW = {
    PATH: "on: push\npermissions: {}\njobs:\n  pypi:\n    runs-on: x\n    steps:\n"
    + "".join(f"      - {step}\n" for step in STEPS),
    "make.py": MAKE,
}


@pytest.fixture
def attempts(tmp_path):
    """Two attempts at an upload: whether each succeeded, its log, and what was public after it."""
    pytest.importorskip("pypiserver")
    pytest.importorskip("twine")
    packages = tmp_path / "packages"
    packages.mkdir()

    def public():
        files = sorted(packages.iterdir())
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def run(faults=(), lost=()):
        seen = []
        with (
            toy(tmp_path / "toy", WORKFLOW) as (executor, event),
            index_server(packages, executor.forge) as executor.pypi,
        ):
            executor.forge.faults[:] = faults
            executor.lost[:] = lost
            done = executor.start(PATH, event)
            for attempt in (1, 2):
                log = tmp_path / "toy" / "logs" / f"{done.id}.pypi.{attempt}.log"
                seen.append((done.ok, log.read_text(), public()))
                if attempt == 1:
                    done.results.clear()  # all of it again, also what succeeded
                    executor.again(done)
            assert not executor.lost
            assert not [fault for fault in executor.forge.faults if fault.count]
        return seen

    return run


def test_what_is_there_already_is_left_alone(attempts):
    first, second = attempts()
    assert first[0]
    assert second[0]
    assert first[2].keys() == {ONE, TWO}
    assert first[2] == second[2]
    assert f"Skipping {TWO} because it appears to already exist" in " ".join(second[1].split())


@pytest.mark.parametrize(
    ("fault", "says", "there"),
    [
        (RequestFault("500", f"POST /pypi/{TWO}", FIVE), "500 Internal Server Error", {ONE}),
        at_night(RequestFault("cut", f"POST /pypi/{TWO}"), "Connection", {ONE}),
        at_night(RequestFault("lost", f"POST /pypi/{ONE}"), "Connection", {ONE}),
        at_night(RequestFault("lost", f"POST /pypi/{TWO}"), "Connection", {ONE, TWO}),
        at_night(RequestFault("flip", f"POST /pypi/{TWO}"), REFUSED, {ONE}),
        at_night(RequestFault("flip", f"POST /pypi/{ONE}"), REFUSED, set()),
    ],
)
def test_an_upload_that_fails_is_completed_by_the_next_attempt(attempts, fault, says, there):
    first, second = attempts([fault])
    assert not first[0]
    assert says in " ".join(first[1].split())
    assert first[2].keys() == there
    assert second[0]
    assert second[2].keys() == {ONE, TWO}
    assert first[2].items() <= second[2].items()


def test_a_runner_that_is_lost_at_an_upload_is_replaced(attempts):
    first, second = attempts(lost=[Lost("pypi", STEP, request=f"POST /pypi/{ONE}")])
    assert (first[0], first[2].keys()) == (False, {ONE})
    assert (second[0], second[2].keys()) == (True, {ONE, TWO})
