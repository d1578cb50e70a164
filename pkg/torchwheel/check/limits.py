"""What the matrix allows of a wheel."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the gates."""

    max_size_mib: float
    newest_glibc: str | None = None
    """The newest C library a wheel may need, "2.28"; None for any."""
