"""Every input of the corpus: what is right is taken, what is hostile is refused in one line.

`nox -s fuzz`, which each push runs, begins with the corpus.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_targets import TARGETS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The record of a run that reads the corpus and nothing more."""
    folder = tmp_path_factory.mktemp("fuzz")
    command = [sys.executable, HERE / "fuzz.py", "0", "--record", folder / "record.json"]
    done = subprocess.run(
        [*command, "--save", folder / "saved"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=600,
    )
    assert done.returncode in (0, 1)
    return json.loads((folder / "record.json").read_text())


@pytest.mark.nightly
@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_is_read_as_promised(record, name):
    assert record["targets"][name]["inputs"] == len(TARGETS[name].corpus())
    assert [fault for fault in record["faults"] if fault["target"] == name] == []


def test_what_earlier_runs_found_is_in_it():
    kept = {f"{path.parent.name}/{path.name}" for path in (HERE / "corpus").rglob("*")}
    assert kept >= {
        "inspect/tag of escape sequences",
        "lock/line break in the name of a torch",
        "lock/line separator in a platform",
        "sdist/long name of 4 GiB",
    }
    assert all(set(TARGETS[name].corpus().others) for name in ("inspect", "lock", "sdist"))
