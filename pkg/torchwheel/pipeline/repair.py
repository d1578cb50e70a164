"""auditwheel gives the platform tag that the symbols allow; torch and the driver stay outside."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.pipeline.scripts import path_with_scripts

# What the user's torch and driver bring.
_OUTSIDE = (
    "libtorch*.so*",
    "libc10*.so*",
    "libcuda.so*",
    "libnvidia-ml.so*",
    "libamdhip64.so*",
    "libhsa-runtime64.so*",
)


def repair(wheel: Path, out: Path, brought: Iterable[str] = ()) -> Path:
    """The wheel with the tag auditwheel finds, in the empty folder `out`.

    Libraries that it needs and no system has are copied into it, but for those of torch and the
    driver and those named in `brought`, which torch brings too.
    """
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--only-plat"]
    for name in (*_OUTSIDE, *brought):
        command += ["--exclude", name]
    done = subprocess.run(
        [*command, "--wheel-dir", str(out), str(wheel)],
        env={**os.environ, "PATH": path_with_scripts(os.environ)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = list(out.glob("*.whl"))
    if done.returncode or len(found) != 1:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise TorchwheelError(
            f"auditwheel repair {wheel.name}: {(lines or ['no wheel came out'])[-1]}"
        )
    return found[0]
