"""The sources of the smoke tests, and the ways that operators ran."""

import dataclasses
import os
import sys
import types
from pathlib import Path

import pytest

from torchwheel.smoke import probe
from torchwheel.smoke.testing import digest_of_tests, read_suite
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.runtime.status import ExtensionStatus, OperatorStatus

CODE = """\
import pytest
from x import test_imported
@pytest.mark.gpu
def test_a(): pass
async def test_b(): pass
def helper():
    def test_inner(): pass
class TestC:
    def test_d(self): pass
    class TestE:
        def test_f(self): pass
class Other:
    def test_g(self): pass
if x:
    def test_h(): pass
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    folder = tmp_path / "smoke"
    for name, text in {
        "test_one.py": CODE,
        "sub/two_test.py": "def test_a(): pass\n",
        "sub/test_none.py": "answer = 42\n",
        "conftest.py": "def test_conftest(): pass\n",
        "data.bin": "x",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_functions_that_pytest_collects(tests: Path) -> None:
    suite = read_suite(tests)
    assert suite.functions == {
        "sub/two_test.py": ("test_a",),
        "test_one.py": ("test_a", "test_b", "TestC::test_d", "TestC::TestE::test_f"),
    }
    assert suite.files() == ("sub/two_test.py", "test_one.py")
    assert suite.files(["test_one.py"]) == ("test_one.py",)
    assert suite.files(["sub"]) == ("sub/two_test.py",)


def test_the_digest_is_of_every_file_but_what_runs_leave(tests: Path) -> None:
    before = digest_of_tests(tests)
    for name in ("__pycache__/test_one.pyc", ".pytest_cache/x", "sub/.hidden"):
        (tests / name).parent.mkdir(exist_ok=True)
        (tests / name).touch()
    assert digest_of_tests(tests) == before == read_suite(tests).digest
    (tests / "data.bin").write_text("y")
    changed = digest_of_tests(tests)
    assert changed != before
    (tests / "data.bin").rename(tests / "other.bin")
    assert digest_of_tests(tests) not in (before, changed)


def test_a_file_that_is_no_python_is_one_line(tests: Path) -> None:
    (tests / "test_bad.py").write_text("def (\n")
    with pytest.raises(UsageError, match=r"test_bad\.py: expected Python, found ") as caught:
        read_suite(tests)
    assert "\n" not in str(caught.value)


def test_the_suite_of_this_repository() -> None:
    functions = read_suite(Path(__file__).parents[3] / "tests" / "smoke").functions
    assert len(functions) > 10
    assert "test_operator_is_registered" in functions["test_load.py"]


def test_the_ways_of_each_extension_are_asked_after_it_is_loaded(monkeypatch) -> None:
    families = [
        OperatorStatus("scale", ("demo::scale",), "waiting"),
        OperatorStatus("add", ("demo::add",), "fallback"),
    ]
    asked: list[str] = []

    def load_now(package: str) -> None:
        asked.append(package)
        families[0] = dataclasses.replace(families[0], way="prebuilt")

    def status_of(package: str) -> ExtensionStatus | None:
        return ExtensionStatus(package, "auto", tuple(families)) if package == "demo" else None

    runtime = types.SimpleNamespace(load_now=load_now, status_of=status_of)
    monkeypatch.setitem(sys.modules, "torchwheel_runtime.runtime", runtime)
    ways = probe.ways_of(["demo", "other"])
    assert ways == {"demo": {"scale": "prebuilt", "add": "fallback"}}
    assert asked == ["demo", "other"]
    assert probe.choices_of(["demo", "other"]) == {"demo": []}
    monkeypatch.delitem(sys.modules, "torchwheel_runtime.runtime")
    assert probe.ways_of(["demo"]) == {}
    assert probe.choices_of(["demo"]) == {}


def test_the_choices_of_a_universal_wheel_are_those_of_its_status(monkeypatch) -> None:
    lines = ("front end: stable", "GPU 0 (H200, 9.0): cu124")
    status = ExtensionStatus("demo", "auto", (), choices=lines)
    runtime = types.SimpleNamespace(status_of={"demo": status}.get)
    monkeypatch.setitem(sys.modules, "torchwheel_runtime.runtime", runtime)
    assert probe.choices_of(["demo", "other"]) == {"demo": list(lines)}


def test_a_free_threaded_python_is_named_as_its_program_is(monkeypatch) -> None:
    monkeypatch.setattr(probe.platform, "python_version", lambda: "3.13.5")
    for disabled, name in ((None, "3.13.5"), (0, "3.13.5"), (1, "3.13.5t")):
        monkeypatch.setattr(probe.sysconfig, "get_config_var", {"Py_GIL_DISABLED": disabled}.get)
        assert probe.python_release() == name


def test_variables_are_recorded_without_folders_and_addresses(monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("TORCHWHEEL_")]:
        monkeypatch.delenv(name)
    assert probe.own_variables() == {}
    monkeypatch.setenv("TORCHWHEEL_LIBRARY", "cu124")
    monkeypatch.setenv("TORCHWHEEL_CACHE", "/home/me/cache")
    monkeypatch.setenv("OTHER", "x")
    assert probe.own_variables() == {"TORCHWHEEL_CACHE": None, "TORCHWHEEL_LIBRARY": "cu124"}
