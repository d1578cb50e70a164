"""Why a container's build failed, as one line."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchwheel import programs
from torchwheel.pipeline import in_container, inside
from torchwheel_runtime.errors import TorchwheelError


def test_an_import_that_fails_is_named_before_the_tests_that_it_broke(tmp_path):
    machine = dict.fromkeys(("python", "platform", "torch"), "1") | dict.fromkeys(
        ("glibc", "cuda", "hip", "gpu")
    )
    error = "ImportError: dynamic module does not define module export function (PyInit__C)"
    imported = [{"name": "conv._C", "file": None, "error": error}]
    facts = {"machine": machine, "site": str(tmp_path), "imported": imported}
    (tmp_path / inside.PROBE).write_text(json.dumps(facts))
    (tmp_path / inside.JUNIT).write_text(
        '<testsuite><testcase classname="" name="tests.test_conv">'
        '<error message="collection failure"/></testcase></testsuite>'
    )
    log = tmp_path / "build.log"
    log.write_text("error: cibuildwheel failed\n")
    assert in_container._reason(tmp_path, 1) == f"smoke: import conv._C: {error}"
    (tmp_path / inside.PROBE).unlink()
    said = in_container._reason(tmp_path, 1)
    assert said == "smoke: tests.test_conv: collection failure"


def test_a_command_of_cibuildwheel_that_fails_is_named_with_what_it_said(tmp_path):
    (tmp_path / "build.log").write_text(
        "Copying project into container...\n\n    + mkdir -p /\n"
        "sh: 1: cannot create /x.pem: Permission denied\n\n                ✕ 4.80s\n"
        "cibuildwheel: error: Command ['podman', 'exec'] failed with code 2. \n\n"
    )
    assert in_container._reason(tmp_path, 1) == (
        "cibuildwheel: error: Command ['podman', 'exec'] failed with code 2; its last line: "
        "sh: 1: cannot create /x.pem: Permission denied"
    )


def test_the_user_of_a_container_can_write_the_certificates_that_cibuildwheel_copies(tmp_path):
    """cibuildwheel 4.3.5 writes them into `/`, which another user owns: so it is a mount."""
    given = []
    host, inside_, mode = in_container._copied_bundle(SimpleNamespace(give=given.append), tmp_path)
    assert Path(host).read_bytes() == b""
    assert given == [Path(host)]
    assert (inside_, mode) == ("/cibuildwheel-ca-bundle.pem", "rw")


def test_a_container_that_hangs_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "SILENCE", 1)
    run = SimpleNamespace(id="one")
    asked = []
    engine = SimpleNamespace(cpu_seconds=lambda of: asked.append(of) or 12.5, environ={})
    container = in_container.Container(run, SimpleNamespace(), engine, SimpleNamespace())
    log = tmp_path / "build.log"
    command = [sys.executable, "-c", "import time; print('starts', flush=True); time.sleep(99)"]
    with pytest.raises(TorchwheelError, match=r"^the build printed nothing .* for 1 s"):
        container._stream(command, tmp_path, lambda _: None, os.environ)
    assert log.read_text() == "starts\n"
    assert set(asked) == {"one"}
