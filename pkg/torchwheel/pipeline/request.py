"""The last call that wrote to an output folder, so that `--resume` can repeat it."""

import dataclasses
import json
from pathlib import Path

from torchwheel.errors import UsageError
from torchwheel.files import write_text
from torchwheel.pipeline.record import FOLDER

FILE = "request.call"


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be built, and where: `container` or on the host."""

    variants: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    container: bool = False


def save(dist: Path, request: Request) -> None:
    """Remember a call."""
    write_text(dist / FOLDER / FILE, json.dumps(dataclasses.asdict(request)) + "\n")


def last(dist: Path) -> Request:
    """The call before this one."""
    path = dist / FOLDER / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Request(tuple(data["variants"]), tuple(data["archs"]), bool(data["container"]))
    except FileNotFoundError:
        raise UsageError(f"--resume: no run has written to {dist} yet; name variants") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"--resume: {path} is not readable ({error}); name variants") from error
