"""Real smoke runs of a small wheel: in a clean environment with a real torch, and right here."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from torchwheel.cli import main
from torchwheel.smoke import probe, trial_environment
from torchwheel.smoke.results import read_probe
from torchwheel.smoke.smoke_record import Counts, SmokeRecord
from torchwheel.smoke.testing import Trial, digest_of_tests, read_suite, smoke
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.toolkit.cache import cache_folder
from wheelmaker import make_wheel, requirement_of

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TORCH = "2.13.0"
# Those of the pipeline's tests: one environment serves both.
REQUIRES = ["pytest"]
CACHE = cache_folder()
PASSING = "import demo, torch\ndef test_answer(): assert demo.answer == torch.tensor(42)\n"
RUNTIME = """\
class Family:
    operator, way = "scale", "waiting"
class Status:
    operators = [Family]
    choices = ["front end: stable", "GPU 0 (H200, 9.0): cu124"]
def load_now(package):
    Family.way = "prebuilt"
def status_of(package):
    return Status if package == "demo" else None
"""
MORE = """\
import pytest
@pytest.mark.parametrize("text", ["a::b", "[x]", "/y.py"])
def test_a(text):
    if text != "a::b":
        pytest.skip("no [x]")
class TestB:
    def test_c(self): pass
"""
FAILING = PASSING + "def test_wrong(): assert demo.answer == 41\n"

MODES = [
    pytest.param(False, id="clean", marks=pytest.mark.nightly),
    pytest.param(True, id="here"),
]


@pytest.fixture(params=MODES)
def here(request: pytest.FixtureRequest) -> bool:
    if request.param and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch in this environment")
    return bool(request.param)


def run(
    tmp_path: Path,
    wheel: Path,
    code: str,
    *,
    here: bool,
    bundled: Sequence[Path] = (),
    without_gpu: Sequence[str] | None = (),
) -> SmokeRecord:
    tests = tmp_path / "tree" / "smoke"
    tests.mkdir(parents=True, exist_ok=True)
    (tests / "test_demo.py").write_text(code)
    # A source tree beside the tests that must never be imported.
    (tmp_path / "tree" / "demo").mkdir()
    (tmp_path / "tree" / "demo" / "__init__.py").write_text("answer = 0\n")
    return smoke(
        wheel,
        Trial(tests, TORCH, REQUIRES, without_gpu),
        bundled=bundled,
        here=here,
        record=tmp_path / "record.json",
        junit=tmp_path / "junit.xml",
        cache=CACHE,
        progress=Quiet(),
    )


@pytest.mark.nightly
def test_some_tests_where_there_is_no_gpu(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, requires=("torch>=2.6",))
    other = tmp_path / "tree" / "smoke" / "test_other.py"
    other.parent.mkdir(parents=True)
    other.write_text("def test_other(): pass\n")
    record = run(tmp_path, wheel, PASSING, here=False, without_gpu=["test_demo.py"])
    assert record.tests.counts.total == (2 if record.machine.gpu else 1)


def test_tests_that_are_for_a_gpu(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, requires=("torch>=2.6",))
    failing = "def test_on_a_gpu(): assert False\n"
    record = run(tmp_path, wheel, failing, here=False, without_gpu=None)
    if record.machine.gpu:
        assert not record.ok
    else:
        assert (record.verdict, record.sources) == ("imported, not run on a GPU", "")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
@pytest.mark.parametrize(
    "own",
    [pytest.param(False, id="matrix"), pytest.param(True, id="folder", marks=pytest.mark.nightly)],
)
def test_the_command_holds_to_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    for name in ("test_demo.py", "test_other.py"):
        (tmp_path / "smoke").mkdir(exist_ok=True)
        (tmp_path / "smoke" / name).write_text("def test_passes(): pass\n")
    matrix = yaml.safe_load((ROOT / "matrix.yaml").read_text())
    matrix["smoke"] |= {"tests": "smoke", "without_gpu": ["test_demo.py"]}
    del matrix["project"]["bundled"]
    (tmp_path / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    wheel = make_wheel(tmp_path, requires=("torch>=2.6",))
    monkeypatch.chdir(tmp_path)
    tests = ["--tests", "smoke"] if own else ["--matrix", "matrix.yaml"]
    assert main(["smoke", str(wheel), "--here", "--record", "record.json", *tests]) == 0
    data = json.loads(Path("record.json").read_text())
    ran = {file["name"] for file in data["tests"]["files"]}
    every = own or data["machine"]["gpu"]
    assert ran == ({"test_demo.py", "test_other.py"} if every else {"test_demo.py"})


def test_passing(tmp_path: Path, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "tree"))
    wheel = make_wheel(tmp_path, requires=("torch>=2.6",))
    record = run(tmp_path, wheel, PASSING, here=here)
    assert record.ok, record.why
    assert record.verdict == ("passed" if record.machine.gpu else "passed, not run on a GPU")
    assert record.imported[0].file == "demo/__init__.py"
    assert record.sha256 == sha256(wheel)
    assert here or record.machine.torch.startswith(TORCH)
    data = json.loads((tmp_path / "record.json").read_text())
    (file,) = data["tests"]["files"]
    assert file["name"] == "test_demo.py"
    assert file["functions"] == {"test_answer": {"passed": 1, "failed": 0, "skipped": 0}}
    assert data["sources"] == digest_of_tests(tmp_path / "tree" / "smoke")
    assert data["operators"] == {}
    assert data["verdict"] == record.verdict
    assert "test_answer" in (tmp_path / "junit.xml").read_text()


@pytest.mark.nightly
def test_a_bundled_package_is_installed_with_it(
    tmp_path: Path, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("demo_helper", "demo"):
        path = tmp_path / "path" / name / "__init__.py"
        path.parent.mkdir(parents=True)
        path.write_text("answer = 0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    files = {"demo/__init__.py": b"from demo_helper import answer\n"}
    wheel = make_wheel(tmp_path, files=files, requires=("torch>=2.6", "demo-helper"))
    helper = make_wheel(tmp_path / "near", name="demo_helper", claims=None, requires=())
    record = run(tmp_path, wheel, PASSING, here=here, bundled=[helper])
    assert record.ok, record.why
    assert [one.file for one in record.imported] == [
        "demo/__init__.py",
        "demo_helper/__init__.py",
    ]
    assert record.bundled == {helper.name: sha256(helper)}


def test_the_functions_and_the_ways_of_a_record(
    tmp_path: Path, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the sources are said to hold ran, in classes and folders too; a family says how.

    The runtime stands for torchwheel's, which the wheel of an extension brings.
    """
    monkeypatch.setenv("TORCHWHEEL_LIBRARY", "cu124")
    wheel = make_wheel(
        tmp_path,
        files={
            "demo/__init__.py": b"import torchwheel_runtime.runtime\n",
            "torchwheel_runtime/__init__.py": b"",
            "torchwheel_runtime/runtime.py": RUNTIME.encode(),
        },
        requires=("torch>=2.6",),
    )
    tests = tmp_path / "tree" / "smoke"
    (tests / "sub").mkdir(parents=True)
    (tests / "conftest.py").write_text("")
    (tests / "sub" / "test_more.py").write_text(MORE)
    record = run(tmp_path, wheel, "import demo\ndef test_one(): pass\n", here=here)
    assert record.ok, record.why
    found = {file.name: tuple(file.functions) for file in record.tests.files}
    suite = read_suite(tests)
    assert found == suite.functions
    assert found["sub/test_more.py"] == ("test_a", "TestB::test_c")
    counts = record.tests.files[0].functions
    assert counts["test_a"] == Counts(passed=1, skipped=2)
    assert record.tests.skipped == {"no [x]": 2}
    assert record.sources == suite.digest
    assert record.operators == {"demo": {"scale": "prebuilt"}}
    assert record.choices == {"demo": ("front end: stable", "GPU 0 (H200, 9.0): cu124")}
    assert record.variables["TORCHWHEEL_LIBRARY"] == "cu124"


FAILURES = {
    "a test": (FAILING, {}, "1 of 2 tests failed, first test_demo.py::test_wrong"),
    "no test": ("answer = 1\n", {}, "no test was collected (pytest exit status 5)"),
    "the import": (
        PASSING,
        {"demo/__init__.py": b"import no_such_thing\n"},
        "import demo: ModuleNotFoundError: No module named 'no_such_thing'",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("code", "files", "why"), FAILURES.values(), ids=FAILURES)
def test_what_fails(tmp_path: Path, code: str, files: dict[str, bytes], why: str) -> None:
    record = run(tmp_path, make_wheel(tmp_path, files=files), code, here=False)
    assert (record.verdict, record.why) == ("failed", why)
    assert json.loads((tmp_path / "record.json").read_text())["verdict"] == "failed"


def test_a_package_that_dies_on_import(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo/__init__.py": b"import os; os.abort()\n"})
    with pytest.raises(TorchwheelError, match=r"importing torch and demo ended with status -6"):
        run(tmp_path, wheel, PASSING, here=False)


def test_a_torch_the_wheel_does_not_want(tmp_path: Path, here: bool) -> None:
    wheel = make_wheel(tmp_path, requires=("torch>=2.99",))
    with pytest.raises(TorchwheelError, match=r"torch>=2\.99") as caught:
        run(tmp_path, wheel, PASSING, here=here)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "record.json").exists()


def test_no_folder_of_tests(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder of smoke tests expected at"):
        smoke(
            make_wheel(tmp_path),
            Trial(tmp_path / "gone"),
            bundled=[],
            here=True,
            record=tmp_path / "r.json",
            cache=CACHE,
            progress=Quiet(),
        )


def test_a_base_is_made_once_and_again_if_it_was_cut_short(tmp_path: Path) -> None:
    wanted = [requirement_of(make_wheel(tmp_path, requires=()))]

    def make() -> Path:
        return trial_environment.base_environment(tmp_path / "cache", wanted, Quiet())

    base = make()
    extra = base / "extra"
    extra.touch()
    assert make() == base
    assert extra.exists()
    (base / trial_environment.COMPLETE).unlink()
    assert make() == base
    assert not extra.exists()
    assert (base / trial_environment.COMPLETE).is_file()


def test_a_base_that_cannot_be_filled_is_not_complete(tmp_path: Path) -> None:
    wanted = [requirement_of(tmp_path / "gone-1.0-py3-none-any.whl")]
    with pytest.raises(TorchwheelError, match=r"cannot install .*gone-1") as caught:
        trial_environment.base_environment(tmp_path / "cache", wanted, Quiet())
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob(trial_environment.COMPLETE))


def test_the_probe_finds_the_packages_of_a_distribution(tmp_path):
    facts = tmp_path / "facts.json"
    command = [sys.executable, probe.__file__, "--of", f"--facts={facts}", "pytest", "pluggy"]
    subprocess.run(command, check=True)
    found = read_probe(facts)
    assert {one.name for one in found.imported} >= {"_pytest", "pluggy", "pytest"}
    assert all(one.error is None for one in found.imported)
    assert found.machine.python == ".".join(map(str, sys.version_info[:3]))
    assert Path(json.loads(facts.read_text())["site"]).is_dir()
