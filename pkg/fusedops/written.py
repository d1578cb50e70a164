"""Which of its arguments an operator writes to, as its schema says."""

from torch._ops import OpOverload


def written_by(op: OpOverload) -> list[tuple[int, str]]:
    """Their places and names."""
    return [
        (at, argument.name)
        for at, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
