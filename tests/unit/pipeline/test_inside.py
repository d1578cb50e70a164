"""Steps in the container, run here."""

import json
import os
import subprocess
import sys

import pytest

from torchwheel.check import facts
from torchwheel.check.audit import Audit
from torchwheel.check.facts import GateError
from torchwheel.pipeline import inside, repair
from torchwheel_runtime import claims as claims_file
from wheelmaker import stable

IMPORT = """
import importlib, json, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps([name.partition(".")[0] for name in set(sys.modules) - before]))
"""


def test_the_tests_see_what_was_installed_and_not_the_torchwheel_of_the_steps(
    tmp_path, monkeypatch
):
    started = []
    monkeypatch.setenv("PYTHONPATH", "/opt/torchwheel")
    monkeypatch.setattr(os, "execvpe", lambda *call: started.append(call))
    monkeypatch.setattr(inside, "BUNDLED", tmp_path / "bundled")
    (tmp_path / "bundled").mkdir()
    for name in ("two_parts-1.0-py3-none-any.whl", "more-2-py3-none-any.whl"):
        (tmp_path / "bundled" / name).touch()
    inside.main(["test", "tiny", "--tests=smoke", "--junit=j.xml"])
    ((program, arguments, env),) = started
    assert program == "python"
    assert arguments[3:] == [
        *("--of", "--facts=/variant/probe.json", "--tests=smoke", "--junit=j.xml"),
        *("tiny", "more", "two_parts"),
    ]
    assert "PYTHONPATH" not in env


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        # The environment of the tests has only what the wheel requires: torch and torch-scatter
        # require no packaging.
        ("torchwheel.pipeline.inside", {"torchwheel", "torchwheel_runtime"}),
        # `finish` imports it, in the environment of the build.
        ("torchwheel.pipeline.repair", {"torchwheel", "torchwheel_runtime", "packaging"}),
    ],
)
def test_the_steps_import_only_packages_that_a_container_has(module, allowed):
    command = [sys.executable, "-c", IMPORT, module]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    foreign = set(json.loads(done.stdout)) - sys.stdlib_module_names
    assert foreign <= allowed


def test_a_wheel_that_needs_a_newer_c_library_ends_before_it_is_tried(tmp_path, monkeypatch):
    """The repair of a container asks what the gate asks: tests that take minutes come later."""
    (tmp_path / inside.CLAIMS).write_text(claims_file.dumps(stable()))
    (tmp_path / inside.MATERIALS).write_text('{"locked": [], "cxx": "g++"}')
    finished = tmp_path / "demo-1.0-py3-none-manylinux_2_31_x86_64.whl"
    audit = Audit("manylinux_2_31_x86_64", (), ("GLIBC_2.29 by log2, pow",))
    monkeypatch.setattr(repair, "finish_wheel", lambda *_: finished)
    monkeypatch.setattr(facts, "read_audit", {finished: audit}.get)

    def finish(limit):
        return inside.finish(tmp_path / "built.whl", tmp_path, limit, tmp_path)

    assert finish("") == finish("2.31") == finished
    with pytest.raises(GateError) as raised:
        finish("2.28")
    assert str(raised.value) == (
        "manylinux_2_31_x86_64 is for newer systems than glibc 2.28: GLIBC_2.29 by log2, pow; "
        'build without these functions, or set containers.glibc: "2.31" in matrix.yaml'
    )
