"""One step on a worker of a cluster: `python -m torchwheel.steps.cluster_step` reads it as JSON."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from torchwheel import process, process_tree
from torchwheel.errors import TorchwheelError
from torchwheel.files import sha256
from torchwheel.json_files import parse_json
from torchwheel.steps.compiler_cache import own_server, wait_for_writes
from torchwheel.steps.graph import CompileStep


@dataclasses.dataclass(frozen=True)
class StepCall:
    """What a worker needs to know.

    Attributes:
        step: the step.
        launcher: the compiler launcher, sccache.
        environ: the variables of the build.
    """

    step: CompileStep
    launcher: str
    environ: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class StepResult:
    """How a step ended.

    Attributes:
        sha256: of the object; None if the compiler failed.
        output: what the compiler printed.
    """

    sha256: str | None
    output: str


def dump_call(call: StepCall) -> str:
    """The call as JSON."""
    return json.dumps(dataclasses.asdict(call))


def main() -> None:
    """Compile the step of standard input with a compiler server of its own; print the result."""
    call = parse_json(sys.stdin.read(), StepCall, "a step")
    try:
        with process_tree.end_programs_on_signals():
            result = _compile(call)
    except TorchwheelError as error:
        result = StepResult(None, f"torchwheel: {error}")
    except KeyboardInterrupt:
        # Nobody waits for the result any more.
        result = StepResult(None, "stopped")
    print(json.dumps(dataclasses.asdict(result)))


def _compile(call: StepCall) -> StepResult:
    step = call.step
    folder, output = Path(step.folder), Path(step.folder, step.output)
    here = folder.exists()
    output.parent.mkdir(parents=True, exist_ok=True)
    with own_server([call.launcher], call.environ, "the compiler cache") as environ:
        done = process.run(step.command, cwd=folder, env=environ, merge=True)
        if done.status == 0 and wait_for_writes([call.launcher], environ).failed:
            raise TorchwheelError(f"{step.name}: the compiler cache does not take its object")
    if done.status:
        return StepResult(None, done.output)
    found = sha256(output)
    if not here:
        # Another machine's build folder: the object is in the compiler cache.
        with contextlib.suppress(OSError):
            output.unlink()
    return StepResult(found, done.output)


if __name__ == "__main__":
    main()
