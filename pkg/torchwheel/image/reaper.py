"""Outlives its parent for a moment, to remove the containers a killed run left.

It reads its standard input, which the parent holds open and never writes to: however the parent
ends, kill -9 included, that ends too.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from torchwheel.errors import TorchwheelError
from torchwheel.image.engine import Engine

_TRIES = 5


@contextlib.contextmanager
def reaping(engine: Engine, run: str) -> Iterator[None]:
    """Remove the containers of `run` before the block and, whatever happens to it, after."""
    engine.remove_containers(run)
    with subprocess.Popen(
        [sys.executable, "-m", __name__, engine.name, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A session of its own: what kills the parent's process group leaves it alone.
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
    """Wait for the parent's end, then remove."""
    name, run = arguments
    engine = Engine("docker" if name == "docker" else "podman", {})
    sys.stdin.buffer.read()
    # The engine refuses one that is in the making or going just now: ask again.
    for _ in range(_TRIES):
        with contextlib.suppress(TorchwheelError):
            engine.remove_containers(run)
            return


if __name__ == "__main__":
    main(sys.argv[1:])
