"""Runs the command line once for each line of its standard input, as another user if it is root.

Each line is JSON: arguments, variables, folder and user. Each run is a fork of this process, so
that the modules are imported once. The answer is a line of JSON.
"""

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from torchwheel import cli

MODULES = (
    *("torchwheel.check.gates", "torchwheel.index.serve", "torchwheel_runtime.jit.store"),
    *("torchwheel.matrix.render", "torchwheel.pipeline.wheels", "torchwheel.release.assemble"),
    *("torchwheel.scaffold.new", "torchwheel.smoke.testing", "torchwheel.toolkit.provide"),
    *("torchwheel.evidence.bundles", "torchwheel.evidence.verify"),
    *("encodings.idna", "encodings.unicode_escape"),
)
"""What commands import: it is slow, and another user may not reach this Python's folder."""
SECONDS = 60


def run(call: dict[str, object]) -> None:
    """Be the command line; does not return."""
    if call["user"]:
        os.setgroups([])
        os.setgid(call["user"])
        os.setuid(call["user"])
    for name, value in call["env"].items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    os.chdir(call["cwd"])
    os.umask(0o022)
    signal.alarm(SECONDS)
    sys.argv = ["torchwheel", *call["arguments"]]
    try:
        status = cli.main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)  # the exit of so large a process takes longer than the command


def main() -> None:
    """Answer each line."""
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        call = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                null = os.open(os.devnull, os.O_RDONLY)
                for handle, descriptor in ((null, 0), (out.fileno(), 1), (err.fileno(), 2)):
                    os.dup2(handle, descriptor)
                run(call)
            _, status = os.waitpid(child, 0)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
            print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)


if __name__ == "__main__":
    assert Path(__file__).name == "faultdriver.py"
    main()
