"""Base images made here, from Debian's packages, for a machine that reaches no registry."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.image.engine import Engine
from torchwheel.image.recipe import Base


def make_base(engine: Engine, base: Base, progress: Progress) -> str:
    """Bootstrap a Debian release and import it; returns what names its content.

    A foreign machine's programs are run by emulation (qemu-user, registered with the kernel).
    """
    machine = base.machine
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise TorchwheelError(
            "mmdebstrap makes base images and is not here: `apt-get install mmdebstrap`"
        )
    progress.step(f"base image {base.suite}: mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="torchwheel-base-") as folder:
        archive = Path(folder) / "root.tar"
        command = [tool, "--quiet", "--variant=minbase", "--include=ca-certificates"]
        # The release files of testing and unstable are often out of date on mirrors.
        command += ['--aptopt=Acquire::Check-Valid-Until "false"']
        command += [f"--architectures={machine}"] if machine else []
        done = subprocess.run(
            [*command, base.suite, str(archive)],
            # The same packages then give the same archive, whatever the day.
            env={**os.environ, "SOURCE_DATE_EPOCH": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise TorchwheelError(f"mmdebstrap {base.suite}: {(lines or ['it said nothing'])[-1]}")
        arguments = ["import", *(["--arch", machine] if machine else []), str(archive), base.local]
        engine.call(arguments, f"base image {base.suite}")
    return engine.content_of(base.local) or ""
