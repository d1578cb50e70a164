"""What the first call on a GPU imports: it waits for each module."""

import subprocess
import sys

SCRIPT = """
import sys
import torchwheel_runtime.runtime.universal
heavy = {"packaging", "rich", "filelock", "elftools", "pydantic", "ninja", "subprocess"}
heavy |= {"torchwheel", "torchwheel_runtime.toolkit"}
heavy |= {"torchwheel_runtime.machine.toolkits", "torchwheel_runtime.arch.lists"}
print(sorted(heavy & set(sys.modules)))
"""


def test_libraries_are_chosen_without_what_builds_need():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
