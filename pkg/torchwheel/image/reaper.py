"""A child that outlives a killed run for a moment and removes its containers.

It waits for the end of its standard input. The parent holds that open and never writes to it, so it
ends with the parent, even by kill -9.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from torchwheel.image.engine import Engine
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.process import python_module

_TRIES = 5


@contextlib.contextmanager
def reap_containers(engine: Engine, run: str) -> Iterator[None]:
    """Remove the containers of `run` before the block and after it, however it ends."""
    engine.remove_containers(run)
    with subprocess.Popen(
        [*python_module(sys.executable, __name__), engine.name, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # In its own session it survives when the parent's process group is killed.
        start_new_session=True,
        env={**os.environ, **engine.environ},
    ) as process:
        try:
            yield
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait()


def main(arguments: list[str]) -> None:
    """Wait for the parent's end, then remove its containers."""
    name, run = arguments
    engine = Engine("docker" if name == "docker" else "podman", {})
    sys.stdin.buffer.read()
    # The engine refuses a container that just starts or ends: ask again.
    for _ in range(_TRIES):
        with contextlib.suppress(TorchwheelError):
            engine.remove_containers(run)
            return


if __name__ == "__main__":
    main(sys.argv[1:])
