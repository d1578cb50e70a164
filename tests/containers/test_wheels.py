"""A wheel built, repaired and tried in its container: real image, compilers, auditwheel, torch."""

import json
import os
import re
import subprocess

import pytest
from interrupting import containers, kill_driver, nothing_half_made, started

from bundled_package import WHEEL, add_bundled_package
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.smoke.testing import digest_of_tests
from torchwheel_runtime.files import sha256

pytestmark = pytest.mark.containers


def the_wheel(dist):
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="once"), pytest.param(("--twice",), marks=pytest.mark.nightly)],
)
def test_a_wheel_of_the_container_passes_every_gate(
    tiny, torchwheel, command, environ, engine, options
):
    """Also after a run that was killed, whose container ends with it."""
    with started(command, environ, tiny, engine) as driver:
        kill_driver(driver, os.killpg, tiny / "dist", engine)
    done = torchwheel(*options, cwd=tiny)
    wheel = the_wheel(tiny / "dist")
    # The old system it was linked on shows: nothing newer than glibc 2.17 is needed.
    assert re.search(r"-py3-none-manylinux(2014|_2_17)_x86_64", wheel.name), wheel.name
    results = run_gates(wheel, Limits(max_size_mib=2))
    assert all(result.ok for result in results), results
    (row,) = json.loads((tiny / "dist" / "report.json").read_text())["variants"]
    assert row["record"]["sha256"] == sha256(wheel)
    # A second build with an empty cache gives these bytes.
    assert row["record"]["built_twice"] is bool(options)
    assert row["record"]["built_in"].startswith("localhost/torchwheel/cuda-13.0-cp311:")
    assert row["record"]["cpu_seconds"].keys() == {"start", "build", "repair", "test"}
    smoke = json.loads((tiny / "dist" / "smoke" / "cu130-stable.json").read_text())
    assert smoke["sha256"] == sha256(wheel)
    assert smoke["machine"]["glibc"] == "2.31"
    assert {file["name"] for file in smoke["tests"]["files"]} == {
        path.name for path in (tiny / "smoke").glob("test_*.py")
    }
    assert smoke["sources"] == digest_of_tests(tiny / "smoke")
    assert not list((tiny / "dist" / ".torchwheel").glob("making-*"))
    nothing_half_made(tiny / "dist")
    assert containers(engine, tiny / "dist") == []
    # The command that installs the wheel is one line, to be copied: it names the index and, twice,
    # the wheel.
    lines = [line for line in done.stdout.splitlines() if "pip install" not in line]
    assert max(map(len, lines)) <= 80 + len(str(tiny))

    again = torchwheel(*options, cwd=tiny)
    assert "nothing to do" in again.stderr


@pytest.mark.nightly
def test_a_wheel_is_the_same_in_any_folder(tiny, tiny_in, torchwheel, command, environ, tmp_path):
    torchwheel(cwd=tiny)
    # Another folder, where a build on the host has left its objects and its wheel.
    other = tiny_in(tmp_path / "another" / "place")
    on_host = [word for word in command if word != "--container"]
    subprocess.run(on_host, cwd=other, env=environ, check=True, capture_output=True)
    assert "manylinux2014" not in the_wheel(other / "dist").name
    torchwheel(cwd=other)
    assert sha256(the_wheel(other / "dist")) == sha256(the_wheel(tiny / "dist"))


@pytest.mark.nightly
def test_what_fails_in_the_container_with_its_bundled_package_is_kept_out(tiny, torchwheel):
    helper = add_bundled_package(tiny)
    # The steps of the pipeline have a torchwheel in there; the tests must find none.
    (tiny / "smoke" / "test_more.py").write_text(
        "import importlib.util\n"
        "def test_alone():\n    assert importlib.util.find_spec('torchwheel') is None\n"
    )
    done = torchwheel(cwd=tiny)
    smoke = json.loads((tiny / "dist" / "smoke" / "cu130-stable.json").read_text())
    assert smoke["bundled"] == {WHEEL: sha256(tiny / "dist" / "bundled" / WHEEL)}
    assert [one["file"] for one in smoke["imported"]] == [
        "tiny/__init__.py",
        "tiny_helper/__init__.py",
    ]
    (helper / "tiny_helper" / "__init__.py").write_text("ONE = 2.0\n")
    done = torchwheel(cwd=tiny, status=1)
    assert re.search(r"failed: cu130-stable: smoke: \S+::test_scale\S*: .*assert ", done.stdout), (
        done.stdout
    )
    # The wheel of the first run was tried with an older bundled package.
    assert not list((tiny / "dist" / "index").rglob("*.whl"))


@pytest.mark.nightly
def test_a_wheel_that_tells_the_day_of_its_build_is_refused(tiny, torchwheel):
    setup = tiny / "setup.py"
    telling = 'import time\nPath("tiny/built.py").write_text(f"when = {time.time()}")\n'
    setup.write_text(setup.read_text().replace("\nsetup(", f"\n{telling}setup("))
    done = torchwheel("--twice", cwd=tiny, status=1)
    assert re.search(r"not reproducible: tiny/built\.py differs", done.stdout)
    assert not list((tiny / "dist").glob("*.whl"))


def test_a_compile_error_in_the_container_is_one_line(tiny, torchwheel):
    source = tiny / "csrc" / "scale.cu"
    source.write_text(source.read_text() + "\nint broken(\n")
    done = torchwheel(cwd=tiny, status=1)
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("failed: ")]
    assert "scale.cu" in line
    assert "build.log" in line
