"""Steps in the container, run here."""

import json
import os
import subprocess
import sys
from pathlib import Path

from torchwheel.pipeline import inside

IMPORT = """
import json, sys
before = set(sys.modules)
import torchwheel.pipeline.inside
print(json.dumps([name.partition(".")[0] for name in set(sys.modules) - before]))
"""
SCRIPT = "import os, sys\nprint(os.environ.get('PYTHONPATH'), *sys.argv[1:])\n"


def test_the_probe_sees_what_was_installed_and_not_the_torchwheel_of_the_steps(
    tmp_path, monkeypatch
):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", "/opt/torchwheel")
    monkeypatch.setattr(inside, "BUNDLED", tmp_path / "bundled")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    inside.probe("tiny", script, tmp_path)
    assert (tmp_path / inside.PROBE).read_text() == "None --of tiny\n"
    (tmp_path / "bundled").mkdir()
    for name in ("two_parts-1.0-py3-none-any.whl", "more-2-py3-none-any.whl"):
        (tmp_path / "bundled" / name).touch()
    inside.probe("tiny", script, tmp_path)
    assert (tmp_path / inside.PROBE).read_text() == "None --of tiny more two_parts\n"


def test_the_steps_import_only_packages_that_a_container_has():
    done = subprocess.run([sys.executable, "-c", IMPORT], stdout=subprocess.PIPE, check=True)
    foreign = set(json.loads(done.stdout)) - sys.stdlib_module_names
    assert foreign <= {"torchwheel", "packaging"}
