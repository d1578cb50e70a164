"""Says what a build lacked: a module, or what the sandbox hid from it, and the option for each."""

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.sdist.sandbox import is_of_system
from torchwheel_runtime.errors import MissingModuleError, TorchwheelError

_OFFLINE = re.compile(
    r"name resolution|Name or service not known|could ?n[o\u2019']t resolve|getaddrinfo|URLError"
    r"|No address associated with hostname|Network is unreachable|No route to host"
    r"|Failed to establish a new connection|Connection refused|Failed to connect|Max retries",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"No such file|not found|cannot find|can't find|does not exist|do not exist|doesn't exist"
    r"|could not find|cannot open|Permission denied|PermissionError|FileNotFoundError|Read-only",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:\.{1,2}/|~?/)[^\s'\":;,()\[\]<>]+")
_SHOW = "--sandbox off does not, and runs the project's code with your rights"


@contextlib.contextmanager
def explain_failure(hidden: "HiddenThings | None", log: Path | None = None) -> Iterator[None]:
    """Name the option that gives a build what it lacked.

    Args:
        hidden: what the sandbox hides; None without a sandbox.
        log: what the build has printed.
    """
    try:
        yield
    except MissingModuleError as error:
        text = "if the build needs what the project does not say, add --with REQUIREMENT"
        raise MissingModuleError(f"{error}; {text}") from error
    except TorchwheelError as error:
        text = hidden.explain(str(error), log) if hidden and type(error) is TorchwheelError else ""
        if not text:
            raise
        raise TorchwheelError(f"{error}; {text}") from error


@dataclasses.dataclass(frozen=True)
class HiddenThings:
    """What the sandbox of a project's build hides from it.

    Attributes:
        project: the project's folder, or its archive.
        copy: the copy of it that is built.
        copies: the folder that the copy is in, with some of the folders above it.
        shown: folders that the sandbox shows, or whose files are not the user's.
        variables: the project's own variables, which may name files.
    """

    project: Path
    copy: Path
    copies: Path
    shown: Sequence[Path]
    variables: Mapping[str, str]

    def explain(self, reason: str, log: Path | None = None) -> str:
        """What the sandbox hid, if it can be why a build failed for this reason; else empty.

        A program that a build ran may have said it in the log alone.
        """
        for path in _PATH.findall(reason) if _MISSING.search(reason) else ():
            if place := self._hidden(path):
                return f"the sandbox hides {place}; {_SHOW}"
        for name, value in self.variables.items() if _MISSING.search(reason) else ():
            for path in _PATH.findall(value):
                if place := self._hidden(path):
                    return f"the sandbox hides {place}, which {name} names; {_SHOW}"
        said = log.read_text(encoding="utf-8", errors="replace") if log and log.exists() else ""
        return f"the sandbox hides the network; {_SHOW}" if _OFFLINE.search(reason + said) else ""

    def _hidden(self, text: str) -> Path | None:
        """The file that a path of the build means outside the sandbox, if it is hidden there."""
        path = Path(os.path.normpath(self.copy / os.path.expanduser(text)))  # noqa: PTH111 - a text
        if path.is_relative_to(self.copies):
            # Beside the copy is what lies beside the project; beside an archive's there is nothing.
            if self.project.is_file():
                return None
            path = Path(os.path.normpath(self.project / os.path.relpath(path, self.copy)))
        shown = (self.project, Path(sys.base_prefix), Path(sys.prefix), *self.shown)
        if is_of_system(path) or any(path.is_relative_to(one) for one in shown):
            return None
        return path if os.path.lexists(path) else None
