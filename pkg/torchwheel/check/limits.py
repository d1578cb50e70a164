"""What the matrix allows of a wheel."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the gates."""

    max_size_mib: float
