"""Work that several jobs share: the second of three.

Standard library only: builds in containers read it.
"""

import dataclasses
import re
from collections.abc import Iterator

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import quote


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of the jobs that compile kernels or a project's steps together: the second of three."""

    number: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def take(self, count: int) -> Iterator[bool]:
        """For each of `count` things, whether this shard has it."""
        return (index % self.count == self.number - 1 for index in range(count))

    @property
    def suffix(self) -> str:
        """End of the names of its files: "-2of3"; empty if it is the only one."""
        return f"-{self.number}of{self.count}" if self.count > 1 else ""


def object_file(digest: str) -> str:
    """Name of the file of an object that a job gives to others, by the hash of its bytes."""
    return f"{digest}.o"


def parse_shard(text: str, where: str) -> Shard:
    """A shard from "2/3"; `where` names the text in the error for anything else."""
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", text, re.ASCII)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f'{where}: expected e.g. "2/3", the second of three, found {quote(text)}')
    return Shard(int(found[1]), int(found[2]))
