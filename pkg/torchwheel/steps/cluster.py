"""Compiles steps on the workers of a Dask cluster.

A worker sees the project and torchwheel's cache under the same paths as this machine, and has
sccache. It leaves its objects in the compiler cache of the build. A step whose worker dies is given
to another one by the scheduler.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from torchwheel import process
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.json_files import parse_json
from torchwheel.steps.cluster_step import StepCall, StepResult, dump_call
from torchwheel.steps.graph import CompileStep, ExpectedObject
from torchwheel.text import quote

_ADDRESS = re.compile(r"(tcp|tls)://[\w.\[\]:-]+:\d+", re.ASCII)
_SECONDS = 10
_POLL = 0.2


def check_cluster(address: str) -> None:
    """Raise unless a scheduler with workers answers at `address`, e.g. "tcp://10.0.0.5:8786"."""
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--on {quote(address)}: expected e.g. tcp://10.0.0.5:8786")
    with _connected(address) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise TorchwheelError(f"--on {address}: expected workers, found none; start `dask worker`s")


def _connected(address: str) -> Any:  # noqa: ANN401 - Dask is not there for who does not use it
    try:
        from distributed import Client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            "--on: expected the package distributed, found none; install it beside torchwheel"
        ) from error
    try:
        return Client(address, timeout=_SECONDS)
    except OSError as error:
        reason = "no scheduler answers there"
        raise TorchwheelError(f"--on {address}: {reason}; start `dask scheduler`") from error


def compile_steps(
    address: str, steps: Sequence[CompileStep], launcher: str
) -> dict[str, ExpectedObject]:
    """Compile steps on the workers; returns the objects by the names of the steps.

    Raises:
        TorchwheelError: a step failed, or worker after worker died of it.
    """
    # The server of this build is not that of a worker's machine.
    environ = {name: text for name, text in os.environ.items() if name != "SCCACHE_SERVER_UDS"}
    compiled: dict[str, ExpectedObject] = {}
    with _connected(address) as client:
        from distributed import as_completed  # noqa: PLC0415 - an extra

        calls = {step.name: dump_call(StepCall(step, launcher, environ)) for step in steps}
        futures = {
            client.submit(run_on_worker, calls[step.name], pure=False): step for step in steps
        }
        for number, future in enumerate(as_completed(list(futures)), 1):
            step = futures[future]
            try:
                result = parse_json(future.result(), StepResult, f"the worker of {step.name}")
            except TorchwheelError:
                raise
            except Exception as error:
                reason = " ".join(str(error).split())
                raise TorchwheelError(f"{step.name}: its worker failed: {reason}") from error
            # As ninja reports a step, so that the user sees which one it was.
            print(f"[{number}/{len(steps)}] {shlex.join(step.command)}", flush=True)
            if result.sha256 is None:
                print(result.output, flush=True)
                raise TorchwheelError(f"{step.name}: its compiler failed on a worker")
            compiled[step.name] = ExpectedObject(result.sha256, "a worker")
    return compiled


def run_on_worker(call: str) -> str:
    """Compile a step, on a worker; returns the result as JSON.

    The compiler ends when the client gives the step up, and when the worker is killed.
    """
    from distributed import get_worker  # noqa: PLC0415 - an extra

    worker = get_worker()
    key = worker.get_current_task()
    # A process of its own: it finds the compilers of sccache's server, and ends them.
    command = process.python_module(sys.executable, "torchwheel.steps.cluster_step")
    text: str | None = call
    stopped = False
    with subprocess.Popen(
        process.ending_with_parent(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        while True:
            try:
                output, _ = child.communicate(text, timeout=_POLL)
            except subprocess.TimeoutExpired:
                text = None
                task = worker.state.tasks.get(key)
                if not stopped and (task is None or task.state != "executing"):
                    # Once: a second signal would end it before its compilers.
                    child.terminate()
                    stopped = True
            else:
                return output.strip().rpartition("\n")[2]
