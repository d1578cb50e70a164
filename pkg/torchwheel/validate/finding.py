"""What a rule found wrong: what it expected, what is there, and what to do, as one sentence."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, get_args

Rule = Literal[
    "torch",
    "backend",
    "toolkit",
    "toolkit-torch",
    "two-toolkits",
    "host-compiler",
    "driver",
    "ptx",
    "archs",
    "glibc",
]
RULES: tuple[Rule, ...] = get_args(Rule)

MEANINGS: Mapping[Rule, str] = {
    "torch": "torch is there, and of the range that the library is for",
    "backend": "torch is built for the GPUs that the library has kernels for",
    "toolkit": "there is a toolkit, and its parts are of one release",
    "toolkit-torch": "the toolkit and torch are of CUDA or ROCm releases that go together",
    "two-toolkits": "the toolkits that variables and the PATH lead to are of one release",
    "host-compiler": "there is a C++ compiler, and the toolkit works with it",
    "driver": "the driver serves the toolkit's release",
    "ptx": "the driver can compile the PTX that a GPU depends on",
    "archs": "there is code for every GPU",
    "glibc": "the C library is at least the one that the wheel's tag names",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A rule that does not hold.

    Attributes:
        rule: its name, which TORCHWHEEL_IGNORE takes.
        expected: what it asks for, and why.
        found: what is there.
        fix: what to do, with a command where there is one.
        blocks: False where the library builds and loads all the same, and is of less use.
    """

    rule: Rule
    expected: str
    found: str
    fix: str
    blocks: bool = True

    def __str__(self) -> str:
        return f"{self.rule}: expected {self.expected}; found {self.found}; {self.fix}"
