"""CPython's limited API: the symbols that a library of a cpXY-abi3 wheel may use.

`python -m torchwheel.check.limited_api` renews the data file from the package abi3info, which has
CPython's own list (Misc/stable_abi.toml).
"""

import functools
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping

from torchwheel import data
from torchwheel_runtime import files
from torchwheel_runtime.inspect.elf import PYTHON
from torchwheel_runtime.versions import version_numbers

FILE = "limited_api.json"


@functools.cache
def _added() -> Mapping[str, str]:
    """The Python that each symbol came with, e.g. {"PyType_FromSpec": "3.2"}."""
    releases: dict[str, list[str]] = data.read(FILE)["added"]
    return {name: release for release, names in releases.items() for name in names}


def outside_limited_api(symbols: Iterable[str]) -> list[str]:
    """Those of Python's symbols that no release has in its limited API."""
    return sorted(name for name in symbols if name not in _added())


def added_later(symbols: Iterable[str], interpreters: Iterable[str]) -> Iterator[str]:
    """The symbols that the limited API has since a later Python than the oldest, e.g. "cp39"."""
    minors = [int(one[3:]) for one in interpreters if one.startswith("cp3") and one[3:].isdigit()]
    for name in sorted(symbols) if minors else ():
        since = _added().get(name)
        if since and version_numbers(since) > (3, min(minors)):
            yield f"needs {name}, which the limited API has since Python {since}"


def python_faults(tags: Iterable[tuple[str, str]], symbols: Iterable[str]) -> Iterator[str]:
    """The symbols of Python that a wheel of these tags may not use.

    Args:
        tags: interpreter and ABI of the wheel's tags, e.g. ("cp39", "abi3").
        symbols: the undefined symbols of its libraries.
    """
    pairs = set(tags)
    used = sorted({name for name in symbols if name.startswith(PYTHON)})
    if any(abi == "none" for _, abi in pairs):
        for name in used:
            yield f"{name} is a symbol of Python; a wheel tagged none may use none"
        return
    for interpreter in (interpreter for interpreter, abi in pairs if abi == "abi3"):
        oldest = f"3.{interpreter.removeprefix('cp3')}"
        for name in used:
            since = _added().get(name)
            if since is None:
                yield f"{name} is not in Python's limited API, which {interpreter}-abi3 promises"
            elif version_numbers(since) > version_numbers(oldest):
                yield f"{name} is in the limited API since Python {since}, after {interpreter}"


def main() -> None:
    """Write the data file."""
    abi3info = importlib.import_module("abi3info")  # nothing but this needs it: install it by hand
    added: dict[str, list[str]] = {}
    for symbol, entry in {**abi3info.FUNCTIONS, **abi3info.DATAS}.items():
        if entry.ifdef is None or "fork()" in entry.ifdef.doc:
            added.setdefault(f"3.{entry.added.minor}", []).append(symbol.name)
    ordered = {key: sorted(added[key]) for key in sorted(added, key=version_numbers)}
    text = json.dumps({"schema": 1, "added": ordered}, indent=1) + "\n"
    files.write_text(data.FOLDER / FILE, text)


if __name__ == "__main__":
    main()
