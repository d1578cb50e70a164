"""The steps that cibuildwheel runs in the container: `python -m torchwheel.pipeline.inside`."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torchwheel import claims as claims_file
from torchwheel.errors import TorchwheelError, UsageError, program_error
from torchwheel.files import write_text
from torchwheel.pipeline.repair import repair, stamp

GROUP = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds of all processes so far, and the most bytes they had at once."""

    cpu_seconds: float | None = None
    peak_bytes: int | None = None


def usage(group: Path = GROUP) -> Usage:
    """Read the running container's account."""
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


KEPT = Path("/kept")
BUNDLED = Path("/bundled")
CLAIMS = "claims.json"
PROBE = "probe.json"
JUNIT = "junit.xml"
STEPS = ("start", "build", "repair", "test")
"""Where the container's account is written down, in order."""


def account(step: str, kept: Path = KEPT) -> None:
    """Write down what the container had used when `step` ended."""
    write_text(kept / usage_file(step), json.dumps(dataclasses.asdict(usage())) + "\n")


def usage_file(step: str) -> str:
    """Where `account` writes."""
    return f"usage-{step}.json"


def finish(wheel: Path, out: Path, kept: Path = KEPT) -> Path:
    """Repair a built wheel and write its claims into it; the result is alone in `out`."""
    account("build", kept)
    claims = claims_file.loads((kept / CLAIMS).read_text(encoding="utf-8"), CLAIMS)
    repaired = out.with_name(f"{out.name}-unstamped")
    repaired.mkdir()
    made = stamp(repair(wheel, repaired), claims, out)
    account("repair", kept)
    return made


def probe(project: str, script: Path, kept: Path = KEPT) -> None:
    """Ask the test environment what it is and where it imports the wheels' packages from."""
    named = sorted(wheel.name.split("-")[0] for wheel in BUNDLED.glob("*.whl"))
    done = subprocess.run(
        ["python", str(script), "--of", project, *named],
        # What is imported must be what was installed: not the torchwheel that runs this step.
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = " ".join(done.stderr.split()[-40:])
        raise program_error(f"importing torch ended with status {done.returncode}: {said}")
    write_text(kept / PROBE, done.stdout)


def main(arguments: Sequence[str]) -> int:
    """Run one step."""
    try:
        match arguments:
            case ["finish", wheel, out]:
                finish(Path(wheel), Path(out))
            case ["probe", project]:
                probe(project, Path(__file__).parent.parent / "smoke" / "probe.py")
            case ["account", step]:
                account(step)
            case _:
                raise UsageError("expected finish WHEEL FOLDER | probe PROJECT | account STEP")
    except TorchwheelError as error:
        print(f"torchwheel: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
