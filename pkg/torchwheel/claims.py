"""What a wheel says of itself: the file `torchwheel.json` in its dist-info folder.

The pipeline writes it, the gates compare it with what is found in the binary.
"""

import dataclasses
import json
from typing import Literal

from torchwheel.errors import TorchwheelError

FILE = "torchwheel.json"
SCHEMA = 1

Abi = Literal["stable", "aten", "pure"]


@dataclasses.dataclass(frozen=True)
class Claims:
    """The claims of one wheel; `archs` as the matrix writes them, e.g. ("8.0", "9.0+PTX")."""

    variant: str
    abi: Abi
    torch: str
    """Requires-Dist range of torch, e.g. ">=2.11" or "==2.6.*"."""
    backend: Literal["cuda", "rocm"] | None = None
    toolkit: str | None = None
    """Toolkit release, e.g. "13.0"."""
    archs: tuple[str, ...] = ()
    local: str | None = None
    """Local version, e.g. "cu130"; none for the pure-Python wheel."""
    borrowed: tuple[str, ...] = ()
    """Sonames that torch brings beside its own, e.g. ("libcudart.so.13",): the torch it was built
    with loads them, so the wheel needs a torch that loads the same."""


def dumps(claims: Claims) -> str:
    """Byte-stable JSON."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(claims)}, indent=1) + "\n"


def loads(text: str, where: str) -> Claims:
    """Read claims back; a bent file is one line that names `where`."""
    try:
        data = json.loads(text)
        if data.pop("schema") != SCHEMA:
            raise ValueError(f"schema {SCHEMA} expected")
        data["archs"] = tuple(data["archs"])
        data["borrowed"] = tuple(data.get("borrowed", ()))
        claims = Claims(**data)
        if claims.abi not in ("stable", "aten", "pure"):
            raise ValueError(f"unknown abi {claims.abi!r}")
        if not all(isinstance(text, str) for text in (*claims.archs, *claims.borrowed)):
            raise ValueError("archs and borrowed must be strings")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TorchwheelError(f"{where}: not a torchwheel claims file: {error}") from error
    return claims
