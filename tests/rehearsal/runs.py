"""What a run of a workflow is: what started it, the machines, and how its jobs and steps went."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from rehearsal.forge import Forge

BRANCH = "main"

Conclusion = Literal["success", "failure", "skipped"]


@dataclasses.dataclass(frozen=True)
class Event:
    """What starts a workflow."""

    name: str
    ref: str
    sha: str
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ref_name(self) -> str:
        """The ref without refs/heads/ or refs/tags/."""
        return self.ref.split("/", 2)[-1]


@dataclasses.dataclass(frozen=True)
class Lost:
    """A runner that is lost: at the start of a step, or while it runs.

    Attributes:
        job: the key of the job.
        step: the name of the step; empty for the first.
        request: a request of the step to the forge at which it ends; empty: before the step.
        seconds: after which it ends while the step runs; 0: before the step.
    """

    job: str
    step: str = ""
    request: str = ""
    seconds: float = 0


@dataclasses.dataclass(frozen=True)
class StepLog:
    """How a step went."""

    job: str
    step: str
    attempt: int
    seconds: float
    conclusion: str


@dataclasses.dataclass(frozen=True)
class JobResult:
    """How a job went, and its outputs."""

    conclusion: Conclusion
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Run:
    """A run of a workflow, with all its attempts. `results` has each job by its key."""

    id: int
    path: str
    event: Event
    attempt: int = 0
    results: dict[str, JobResult] = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """The keys of the jobs that failed."""
        return [key for key, result in self.results.items() if result.conclusion == "failure"]

    @property
    def ok(self) -> bool:
        """Whether no job failed."""
        return not self.failed


@dataclasses.dataclass(frozen=True)
class Machine:
    """The runners.

    Attributes:
        root: the folder in which they work.
        user: the user and group of the jobs; None for the one that runs this.
        variables: more variables of the machine.
        clean: whether each job gets an empty home and tool cache. If not, they stay, as on a
            machine of one's own.
        python: the Python that has twine.
    """

    root: Path
    user: int | None
    variables: Mapping[str, str]
    clean: bool
    python: str


@dataclasses.dataclass
class Site:
    """Where the jobs of a rehearsal run.

    Attributes:
        forge: what they talk to.
        source: the repository, from which jobs check out.
        tree: a checkout of it, from which the forge reads workflows.
        machine: their runners.
        pypi: the address of the package index to publish to.
        lost: runners that will be lost, each once.
        clocks: seconds that the clock of a job's runner is ahead, by the key of the job.
        log: of each step.
        say: reports each step.
    """

    forge: Forge
    source: Path
    tree: Path
    machine: Machine
    pypi: str = ""
    lost: list[Lost] = dataclasses.field(default_factory=list)
    clocks: dict[str, int] = dataclasses.field(default_factory=dict)
    log: list[StepLog] = dataclasses.field(default_factory=list)
    say: Callable[[str], None] = lambda _: None
