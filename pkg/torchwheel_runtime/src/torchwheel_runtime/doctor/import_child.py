"""Imports the package in a process of its own and reports the result.

torchwheel_runtime.doctor.importing runs `python import_child.py PACKAGE DESCRIPTOR SECONDS`. The
package may print, crash or hang, so the answer goes to a file descriptor of its own: a JSON line
before the import and one after it, which are ImportResult's. Standard library only.
"""

import dataclasses
import faulthandler
import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO


def main() -> None:
    """Import the package named on the command line. The exit status is always 0."""
    package, descriptor, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    sys.argv = [""]
    if not getattr(sys.flags, "safe_path", False):
        # The folder of this file, whose modules are not for the package to find. That of the call
        # does not take its place, as for `python -c`: files there would be imported, and run.
        del sys.path[0]
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        found = _find_package(package)
        _answer(out, found)
        if found["how"] == "not found":
            return
        # At the time limit: print where it hangs, in native code too, and end the process.
        faulthandler.dump_traceback_later(seconds, exit=True)
        try:
            importlib.import_module(package)
            # As the package's first call on a GPU does.
            if runtime := sys.modules.get("torchwheel_runtime.runtime"):
                runtime.load_now(package)
        # A package may raise anything, SystemExit too.
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            found |= {
                "how": "raised",
                "words": _messages(error),
                "missing_modules": _missing_modules(error),
                "unloaded": _loader_messages(error),
                "where": innermost_line(
                    ((one.filename, one.lineno) for one in frames), found["folders"]
                ),
            }
        else:
            found |= {"how": "imported", "status": _status(package)}
        found |= {"torch": "torch" in sys.modules, "libraries": _loaded_libraries()}
        _answer(out, found)
        faulthandler.cancel_dump_traceback_later()
    # Skip the exit handlers of the package.
    os._exit(0)


def _answer(out: TextIO, facts: dict[str, Any]) -> None:
    out.write(json.dumps(facts, default=str) + "\n")
    out.flush()


def _find_package(package: str) -> dict[str, Any]:
    """Where the package would be imported from. A top-level package is not run to find out.

    The outcome is "left" until the import has ended.
    """
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    if found is None:
        return {"how": "not found"}
    folders = list(found.submodule_search_locations or ())
    return {"how": "left", "file": found.origin, "folders": folders}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from, the first cause last; at most ten."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _messages(error: BaseException) -> list[str]:
    """A line for each error of the chain."""
    texts = (
        (type(link).__name__, " ".join(_printable(str(link)).split())) for link in _chain(error)
    )
    return [f"{name}: {text}" if text else name for name, text in texts]


def _printable(text: str) -> str:
    """`text` without half characters, which stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _missing_modules(error: BaseException) -> list[str]:
    """Names of the modules that the import looked for and did not find."""
    links = (link for link in _chain(error) if isinstance(link, ModuleNotFoundError))
    return [_printable(link.name) for link in links if link.name]


def _loader_messages(error: BaseException) -> list[str]:
    """Messages of the dynamic loader, which refused a library.

    Python reports these as an ImportError with the path of an extension module, or, from ctypes,
    as an OSError without a number.
    """
    return [_printable(str(link)) for link in _chain(error) if _is_from_loader(link)]


def _is_from_loader(error: BaseException) -> bool:
    if isinstance(error, ImportError):
        return str(error.path or "").endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    return isinstance(error, OSError) and error.errno is None


def innermost_line(frames: Iterable[tuple[str, Any]], folders: Iterable[str]) -> str | None:
    """The innermost line in these folders, e.g. "demo/__init__.py:3"; outermost frames first."""
    parents = [Path(folder) for folder in folders]
    inner = None
    for file, line in frames:
        for folder in parents:
            if Path(file).is_relative_to(folder):
                inner = f"{Path(file).relative_to(folder.parent)}:{line}"
    return inner


def _loaded_libraries() -> list[str]:
    """Files of native code that this process has mapped."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    rows = (line.split(None, 5) for line in text.splitlines())
    return sorted({row[5] for row in rows if "x" in row[1] and row[5:] and row[5][0] == "/"})


def _status(package: str) -> dict[str, Any] | None:
    """The status of the package in torchwheel_runtime.runtime, if it is loaded there."""
    runtime = sys.modules.get("torchwheel_runtime.runtime")
    status = runtime.status_of(package) if runtime else None
    # A module cannot be sent as JSON.
    return dataclasses.asdict(dataclasses.replace(status, module=None)) if status else None


if __name__ == "__main__":
    main()
