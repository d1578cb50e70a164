"""Why a container's build failed, as one line."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

from torchwheel import programs
from torchwheel.pipeline import container_files, in_container
from torchwheel_runtime.errors import TorchwheelError


def test_an_import_that_fails_is_named_before_the_tests_that_it_broke(tmp_path):
    machine = dict.fromkeys(("python", "platform", "torch"), "1") | dict.fromkeys(
        ("glibc", "cuda", "hip", "gpu")
    )
    error = "ImportError: dynamic module does not define module export function (PyInit__C)"
    imported = [{"name": "conv._C", "file": None, "error": error}]
    facts = {"machine": machine, "site": str(tmp_path), "imported": imported}
    (tmp_path / container_files.PROBE).write_text(json.dumps(facts))
    (tmp_path / container_files.JUNIT).write_text(
        '<testsuite><testcase classname="" name="tests.test_conv">'
        '<error message="collection failure"/></testcase></testsuite>'
    )
    log = tmp_path / "build.log"
    log.write_text("error: cibuildwheel failed\n")
    assert in_container._reason(tmp_path, log, 1) == f"smoke: import conv._C: {error}"
    (tmp_path / container_files.PROBE).unlink()
    said = in_container._reason(tmp_path, log, 1)
    assert said == "smoke: tests.test_conv: collection failure"


def test_a_container_that_hangs_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "SILENCE", 1)
    run = SimpleNamespace(id="one")
    asked = []
    engine = SimpleNamespace(cpu_seconds=lambda of: asked.append(of) or 12.5)
    log = tmp_path / "build.log"
    command = [sys.executable, "-c", "import time; print('starts', flush=True); time.sleep(99)"]
    with pytest.raises(TorchwheelError, match=r"^the build printed nothing .* for 1 s"):
        in_container._stream(run, engine, command, log, lambda _: None, env=os.environ)
    assert log.read_text() == "starts\n"
    assert set(asked) == {"one"}
