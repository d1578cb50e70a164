"""The tasks of a run: what is at work, how many are done, and how long the rest may take.

A task is a variant, or what is done for it: a part, the gates, the smoke tests. In it run steps,
such as the calls of a compiler. This is bookkeeping alone: nothing is printed, time is an argument.
"""

import dataclasses
import threading
from collections.abc import Mapping
from typing import NamedTuple

ENDING = threading.Event()
"""Set while a signal ends the programs of a command: no other may start."""
HEARING = 0.5
"""Seconds in which a signal that ended a compiler of ours sets ENDING, too."""
TaskPath = tuple[str, ...]
"""The names of a task and of those that it belongs to, the outermost first; empty for the run."""


class Count(NamedTuple):
    """How many steps of a compiler run have ended, and of how many: ninja's `[2/9]`."""

    done: int
    total: int


_NOTHING = Count(0, 0)


class EndedStep(NamedTuple):
    """A step that ended, and its seconds if its start was seen."""

    text: str
    seconds: float | None


@dataclasses.dataclass
class Task:
    """A task at work.

    Attributes:
        path: its names.
        began: when it began.
        result: what came of it, for the line that says its end.
        steps: what runs in it now, and since when.
        count: the steps of the compiler run in it.
        earlier: the steps of the compiler runs in it before that.
    """

    path: TaskPath
    began: float = 0.0
    result: str = ""
    steps: dict[str, float] = dataclasses.field(default_factory=dict)
    count: Count = _NOTHING
    earlier: int = 0

    def change(self, text: str, count: Count | None, now: float) -> list[EndedStep]:
        """Take note of what it does now; returns the steps that this shows to have ended.

        Without a count `text` takes the place of all others. With one it begins beside them, or has
        ended if more of the compiler run are done than before.
        """
        if count is None:
            ended = [] if text in self.steps else self.end_steps(now)
            self.steps.setdefault(text, now)
            return ended
        ended = []
        if count.done < self.count.done or self.count.done == self.count.total:
            ended = self.end_steps(now)
            self.earlier += self.count.total
            self.count = Count(0, count.total)
        if count.done > self.count.done:
            began = self.steps.pop(text, None)
            ended.append(EndedStep(text, None if began is None else now - began))
        else:
            self.steps.setdefault(text, now)
        self.count = count
        return ended

    def end_steps(self, now: float) -> list[EndedStep]:
        """End all of its steps."""
        ended = [EndedStep(text, now - began) for text, began in self.steps.items()]
        self.steps.clear()
        return ended


class Tasks:
    """The tasks of a run: those that are planned, at work and done.

    Attributes:
        run: the run itself, for steps that belong to no other task.
        planned: the tasks that are to come, and the seconds that each took in the last run.
    """

    def __init__(self, now: float) -> None:
        self.run = Task((), now)
        self.planned: dict[TaskPath, float | None] = {}
        self._ended: set[TaskPath] = set()
        self._at_work = [self.run]
        self._past = 0

    def plan(self, seconds: Mapping[TaskPath, float | None]) -> None:
        """Add tasks that are to come."""
        self.planned.update(seconds)

    def begin(self, path: TaskPath, now: float) -> Task:
        """Begin a task."""
        task = Task(path, now)
        self._at_work.append(task)
        return task

    def end(self, task: Task) -> None:
        """End a task; what was planned below it is not to come any more."""
        self._at_work.remove(task)
        depth = len(task.path)
        self._ended |= {path for path in self.planned if path[:depth] == task.path}
        self._past += task.earlier + task.count.done

    @property
    def count(self) -> Count:
        """How many tasks and compiler steps are done, of all that are known."""
        done = len(self._ended) + self._past
        total = len(self.planned) + self._past
        for task in self._at_work:
            done += task.earlier + task.count.done
            total += task.earlier + task.count.total
        return Count(done, total)

    def seconds_left(self, now: float) -> float | None:
        """How long the planned tasks may take, if they take as long as in the last run.

        None where the last run did not have one of them. As many are taken to run side by side
        to the end as do now.
        """
        coming = {path: took for path, took in self.planned.items() if path not in self._ended}
        began = {task.path: task.began for task in self._at_work}
        left = 0.0
        for path, took in coming.items():
            if took is None:
                return None
            left += max(0.0, took - (now - began.get(path, now)))
        return left / max(1, sum(path in began for path in coming)) if coming else None

    def at_work(self) -> list[tuple[str, float]]:
        """What runs now, with the names of its task, and since when; the newest first."""
        parents = {task.path[:-1] for task in self._at_work if task.path}
        found = []
        for task in self._at_work:
            found += [(name_of(task, text), began) for text, began in task.steps.items()]
            if not task.steps and task.path and task.path not in parents:
                found.append((name_of(task), task.began))
        return sorted(found, key=lambda one: -one[1])


def name_of(task: Task, *more: str) -> str:
    """The names of a task, and of a step in it, in a row."""
    return ": ".join([*task.path, *more])
