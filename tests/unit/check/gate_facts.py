"""Facts of wheels for tables of gates: each violation fails just its gate."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from packaging.tags import parse_tag

from torchwheel.check.facts import Fact, Limits, WheelFacts
from torchwheel.check.gates import judge
from torchwheel_runtime.inspect.elf import GpuCode, UndefinedSymbol

LIMITS = Limits(max_size_mib=1)
Change = Callable[[WheelFacts], WheelFacts]
"""What bends the facts of a right wheel."""


Violations = Mapping[str, Sequence[tuple[str, Change]]]
"""By gate: what it says, and the change that it says it of."""


def flat(violations: Violations) -> list[tuple[str, str, Change]]:
    return [(gate, says, change) for gate, rows in violations.items() for says, change in rows]


def failed(facts: WheelFacts, limits: Limits = LIMITS) -> dict[str, str]:
    return {result.name: result.says for result in judge(facts, limits) if not result.ok}


def only(facts: WheelFacts, gate: str, limits: Limits = LIMITS) -> str:
    found = failed(facts, limits)
    assert list(found) == [gate]
    return found[gate]


def changed(facts: WheelFacts, **changes: object) -> WheelFacts:
    """The facts with fields of the wheel changed."""
    return dataclasses.replace(
        facts,
        wheel=Fact(dataclasses.replace(facts.wheel.read(), **changes)),  # type: ignore[arg-type]
    )


def with_library(facts: WheelFacts, name: str = "demo/_C.so", **changes: object) -> WheelFacts:
    """The facts with fields of a library changed."""
    libraries = tuple(
        dataclasses.replace(one, **changes) if one.name == name else one  # type: ignore[arg-type]
        for one in facts.libraries.read()
    )
    return dataclasses.replace(facts, libraries=Fact(libraries))


def with_symbol(facts: WheelFacts, symbol: UndefinedSymbol) -> WheelFacts:
    (library,) = facts.libraries.read()
    return with_library(facts, undefined=(*library.undefined, symbol))


# The same, to be written into a table.


def wheel(**changes: object) -> Change:
    return lambda facts: changed(facts, **changes)


def tags(text: str) -> Change:
    return wheel(tags=frozenset(parse_tag(text)), wheel_tags=frozenset(parse_tag(text)))


def code(*modules: GpuCode, name: str = "demo/_C.so") -> Change:
    return lambda facts: dataclasses.replace(
        facts, gpu_code=Fact({**facts.gpu_code.read(), name: modules})
    )


def symbol(name: str, **fields: bool) -> Change:
    return lambda facts: with_symbol(facts, UndefinedSymbol(name, **fields))


def needs(name: str) -> Change:
    def change(facts: WheelFacts) -> WheelFacts:
        (library,) = facts.libraries.read()
        return with_library(facts, needed=(*library.needed, name))

    return change
