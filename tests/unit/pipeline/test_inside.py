"""Steps in the container, run here."""

import json
import os
import subprocess
import sys

import pytest

from torchwheel.pipeline import inside

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
