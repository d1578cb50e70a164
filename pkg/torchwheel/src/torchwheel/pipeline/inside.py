"""The steps that cibuildwheel runs in the container: `python -m torchwheel.pipeline.inside`.

They and this machine leave files for each other in the variant's folder. Where a container tries a
wheel, only the standard library is present.
"""

import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from torchwheel.compilers.compiler_cache import CacheUse
from torchwheel.smoke import probe_source
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json

GROUP = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds of all processes of the container so far, and their peak memory."""

    cpu_seconds: float | None = None
    peak_bytes: int | None = None


def usage(group: Path = GROUP) -> Usage:
    """Read the usage of the running container from its control group."""
    micro = re.search(r"usage_usec (\d+)", _read(group / "cpu.stat"))
    nano = _number(group / "cpuacct" / "cpuacct.usage")
    if micro:
        cpu: float | None = int(micro[1]) / 1e6
    else:
        cpu = nano / 1e9 if nano is not None else None
    peak = _number(group / "memory.peak")
    if peak is None:
        peak = _number(group / "memory" / "memory.max_usage_in_bytes")
    return Usage(cpu and round(cpu, 3), peak)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


VARIANT = Path("/variant")
BUNDLED = Path("/bundled")
CLAIMS = "claims.json"
MATERIALS = "materials.json"
PLAN = "own-build.json"
"""Of an ordinary project: what its own build needs to know."""
DIVIDED = "divided"
"""Folder of an ordinary project's steps and objects, where jobs divide its build."""
CACHE_USE = "cache-use.json"
"""Of an ordinary project: the files that the compiler cache had, and those that were compiled."""
PROBE = "probe.json"
JUNIT = "junit.xml"
STEPS = ("start", "build", "repair", "test")
"""The steps after which the container's usage is written down, in order."""


def account(step: str, folder: Path = VARIANT) -> None:
    """Write down the usage of the container when `step` ended."""
    write_text(folder / usage_file(step), json.dumps(dataclasses.asdict(usage())) + "\n")


def usage_file(step: str) -> str:
    """Name of the file that `account` writes."""
    return f"usage-{step}.json"


def read_usage(folder: Path) -> tuple[dict[str, float], int | None]:
    """CPU seconds of each step of the last container, and its peak memory when the build ended."""
    seconds: dict[str, float] = {}
    before, peak = 0.0, None
    for step in STEPS:
        try:
            usage = read_json(folder / usage_file(step), Usage)
        except (OSError, MalformedError):
            continue
        if usage.cpu_seconds is not None:
            seconds[step] = round(usage.cpu_seconds - before, 3)
            before = usage.cpu_seconds
        if step == "build":
            peak = usage.peak_bytes
    return seconds, peak


def read_cache_use(folder: Path) -> CacheUse | None:
    """What the compiler cache did for the last container; None where nobody counted."""
    with contextlib.suppress(OSError, MalformedError):
        return read_json(folder / CACHE_USE, CacheUse)
    return None


def finish(wheel: Path, out: Path, newest_glibc: str = "", folder: Path = VARIANT) -> Path:
    """Repair a built wheel, write its claims into it and count what both steps used.

    A wheel that needs a newer C library than `newest_glibc` ends here, before it is tried.
    """
    account("build", folder)
    claims = claims_file.loads((folder / CLAIMS).read_text(encoding="utf-8"), CLAIMS)
    if (folder / PLAN).exists():
        # It imports more than the image of every toolkit has.
        from torchwheel.pipeline import own_build  # noqa: PLC0415

        own_build.count_cache_use(folder)
        claims = own_build.claims_of_built(wheel, claims, folder)
    # The environment of the tests, which runs this module too, has only what the wheel requires.
    from torchwheel.pipeline.repair import BuildMaterials, finish_wheel  # noqa: PLC0415

    finished = finish_wheel(wheel, claims, out, read_json(folder / MATERIALS, BuildMaterials))
    if newest_glibc:
        from torchwheel.check.facts import read_audit  # noqa: PLC0415
        from torchwheel.check.libraries import require_glibc  # noqa: PLC0415

        require_glibc(read_audit(finished), newest_glibc)
    account("repair", folder)
    return finished


def run_tests(project: str, arguments: Sequence[str]) -> NoReturn:
    """Become the process that imports the packages and runs their tests.

    Args:
        project: the distribution under test; those in BUNDLED are imported too.
        arguments: those of `arguments_of_tests`.
    """
    bundled = sorted(wheel.name.split("-")[0] for wheel in BUNDLED.glob("*.whl"))
    # The installed torchwheel must be imported, not the one that runs this step.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = ["python", "-c", probe_source(), "--of", f"--facts={VARIANT / PROBE}", *arguments]
    os.execvpe("python", [*command, project, *bundled], env)  # noqa: S606 - no shell is meant


def main(arguments: Sequence[str]) -> int:
    """Run one step."""
    try:
        match arguments:
            case ["finish", wheel, out, *limit]:
                finish(Path(wheel), Path(out), "".join(limit))
            case ["test", project, *more]:
                run_tests(project, more)
            case ["prepare", project]:
                from torchwheel.pipeline import own_build  # noqa: PLC0415

                own_build.prepare(VARIANT, Path(project))
            case ["account", step]:
                account(step)
            case _:
                raise UsageError(
                    "expected finish WHEEL FOLDER [GLIBC] | test PROJECT … | account STEP | "
                    "prepare FOLDER"
                )
    except TorchwheelError as error:
        print(f"torchwheel: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
