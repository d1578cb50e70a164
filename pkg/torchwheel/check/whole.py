"""Gates of the file as a whole: `record` and `size`."""

from torchwheel.check.facts import Facts, GateError
from torchwheel.check.limits import Limits


def record(facts: Facts, _: Limits) -> str:
    """The archive is whole and safe, and every file has RECORD's hash (read_wheel sees to it)."""
    wheel = facts.wheel.read()
    return f"{len(wheel.members)} files, every hash as RECORD has it"


def size(facts: Facts, limits: Limits) -> str:
    """The file is no larger than the matrix allows."""
    mib = facts.wheel.read().size / (1 << 20)
    if mib > limits.max_size_mib:
        raise GateError(f"{mib:.2f} MiB; at most {limits.max_size_mib:g} MiB expected")
    return f"{mib:.2f} MiB of {limits.max_size_mib:g} MiB"
