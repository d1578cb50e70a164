"""A machine with a network writes a bundle, and one without installs it and tries it."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wheelmaker
from torchwheel.index.writer import IndexedWheel, build_index
from torchwheel.smoke import trial_environment
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.console import Quiet

pytestmark = pytest.mark.integration

NO_NETWORK = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), "http://127.0.0.1:9"),
    "PIP_CONFIG_FILE": os.devnull,
}
TESTS = """
import demo, addon, other

def test_demo():
    assert demo.answer == 42
"""


@pytest.fixture(scope="module")
def base(cache: Path) -> trial_environment.Environment:
    """The torch of the suite's smoke tests, which is there already."""
    return trial_environment.base_environment(cache, ("pytest", "torch==2.13.0"), Quiet())


@pytest.fixture
def here(base, tmp_path) -> Path:
    return trial_environment.layered_environment(base, tmp_path / "here").python


@pytest.fixture
def call(torchwheel, here, tmp_path):
    """An index with demo, which requires a addon; what pip finds has what that one requires."""
    claims = Claims("pure", "pure", "2.6")
    demo = wheelmaker.make_wheel(
        tmp_path / "dist", claims=claims, requires=("torch>=2.6", "addon>=1", "other>=2")
    )
    addon = wheelmaker.make_wheel(
        tmp_path / "dist", name="addon", version="1.2", claims=None, requires=()
    )
    build_index(
        [IndexedWheel(demo, ("simple",)), IndexedWheel(addon, ("simple",))], tmp_path / "index"
    )
    # Both have the addon: it is taken once, from the index.
    make = functools.partial(wheelmaker.make_wheel, tmp_path / "links", claims=None)
    make(name="other", version="2.5", requires=("last", "addon"))
    make(name="last", version="2.5", requires=("torch>=2",))
    make(name="addon", version="1.2", requires=())
    make(name="addon", version="1.3", requires=())
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "test_demo.py").write_text(TESTS)

    def run(*arguments: object, **env: str):
        call = ("install", *arguments, "--python", here)
        return torchwheel(*call, cwd=tmp_path, **env)

    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links")}
    made = run(
        *("demo", "addon", "--index", (tmp_path / "index").as_uri(), "--bundle", "carried"),
        *("--tests", "smoke"),
        **found,
    )
    assert made.returncode == 0, made.stderr
    # What it was made of is not there any more.
    for name in ("dist", "index", "links", "smoke"):
        shutil.rmtree(tmp_path / name)
    return run, made.stdout


def versions(python: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {name: found[name] for name in ("demo", "addon", "other", "last") if name in found}


def test_what_one_machine_carries_another_installs_and_tries(call, here, tmp_path):
    run, said = call
    assert f"carried: 4 wheels for CPython 3.{sys.version_info.minor} " in said
    assert json.loads((tmp_path / "carried" / "bundle.json").read_text())["others"] == [
        "other",
        "last",
    ]
    digest = said.split()[-1]
    shown = run("--from", "carried", "--dry-run", **NO_NETWORK)
    assert shown.returncode == 0, shown.stderr
    assert versions(here) == {}
    done = run("--from", "carried", "--sha256", digest, **NO_NETWORK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert versions(here) == {"demo": "1.0.0", "addon": "1.2", "other": "2.5", "last": "2.5"}
    assert "demo-1.0.0-py3-none-any.whl: passed, not run on a GPU" in done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        # It would run as the tests start.
        ("tests/conftest.py", "open('ran', 'w')", "tests/conftest.py: expected files of bundle.js"),
        ("tests/test_demo.py", "open('ran', 'w')", "tests/test_demo.py: expected "),
        ("index/demo/demo-1.0.0-py3-none-any.whl", "PK", "py3-none-any.whl: expected "),
        ("bundle.json", "[" * 10_000, "bundle.json: expected at most 32 levels, found more"),
    ],
)
def test_nothing_of_a_changed_folder_runs_or_is_installed(
    call, here, tmp_path, name, content, says
):
    run, _ = call
    (tmp_path / "carried" / name).write_text(content)
    done = run("--from", "carried", **NO_NETWORK)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert versions(here) == {}
    assert not [*tmp_path.rglob("ran")]


def test_another_machine_is_one_sentence(call, here, tmp_path):
    run, _ = call
    path = tmp_path / "carried" / "bundle.json"
    manifest = json.loads(path.read_text())
    manifest["machine"]["torch"] = "torch 2.6.0+cu124, built for CUDA 12.4"
    path.write_text(json.dumps(manifest))
    done = run("--from", "carried", **NO_NETWORK)
    assert done.returncode == 1
    assert "torch 2.6.0+cu124, built for CUDA 12.4, any GPU), found another (" in done.stderr
    assert done.stderr.endswith("; make a bundle for this one\n")
    assert done.stderr.count("\n") == 1
    assert versions(here) == {}


def test_a_repository_wants_signatures_and_runs_no_unsigned_test(call, here):
    run, _ = call
    done = run("--from", "carried", "--repository", "owner/demo", **NO_NETWORK)
    assert done.returncode == 1
    assert "demo-1.0.0-py3-none-any.whl: expected an attestation by owner/demo" in done.stderr
    assert versions(here) == {}
