"""The C symbols that each torch release exports: a stable-ABI library may use these only.

`python -m torchwheel.check.torch_symbols torch-2.11.0-….whl …` reads them from CUDA wheels of
torch and updates the data file.
"""

import functools
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchwheel import data, files
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.elf import exported_symbols

FILE = "torch_symbols.json"
_C_SYMBOL = re.compile(r"(aoti_torch|torch)_\w+")
_LIBRARY = re.compile(r"torch/lib/(lib(?:torch|c10)\w*\.so)")
NOT_LINKED = ("libtorch_python.so", "libtorch_global_deps.so")
"""Libraries that libtorch.so does not load; an extension names libtorch.so only."""

Symbols = Mapping[str, frozenset[str]]
"""Library of torch, e.g. libtorch_cpu.so, to the C symbols it exports."""


@functools.cache
def symbols_by_release() -> Mapping[str, Symbols]:
    """Torch minor, e.g. "2.11", to its symbols, from the data file."""
    return {
        release: {library: frozenset(names) for library, names in libraries.items()}
        for release, libraries in data.read(FILE)["releases"].items()
    }


def read_torch_wheel(path: Path) -> tuple[str, dict[str, list[str]]]:
    """The minor release of a torch wheel and the C symbols of each of its libraries."""
    name, version, _, _ = parse_wheel_filename(path.name)
    if name != "torch":
        raise UsageError(f"a wheel of torch expected, got {path.name}")
    found: dict[str, list[str]] = {}
    with open_archive(path) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.files:
            match = _LIBRARY.fullmatch(member.name)
            if match is None or match[1] in NOT_LINKED:
                continue
            library = Path(folder, match[1])
            with library.open("wb") as file:
                file.writelines(archive.blocks(member))
            if names := sorted(filter(_C_SYMBOL.fullmatch, exported_symbols(library))):
                found[match[1]] = names
            library.unlink()
    if not {"libtorch_cpu.so", "libtorch_cuda.so"} <= found.keys():
        raise TorchwheelError(f"{path.name}: libtorch_cpu.so and libtorch_cuda.so expected in it")
    return f"{version.major}.{version.minor}", found


def main(arguments: Sequence[str]) -> int:
    """Update the data file with the wheels named."""
    if not arguments:
        print("usage: python -m torchwheel.check.torch_symbols TORCH_WHEEL…", file=sys.stderr)
        return UsageError.status
    target = data.FOLDER / FILE
    releases = data.read(FILE)["releases"] if target.exists() else {}
    try:
        for argument in arguments:
            release, libraries = read_torch_wheel(Path(argument))
            releases[release] = libraries
            counts = ", ".join(f"{library} {len(names)}" for library, names in libraries.items())
            print(f"torch {release}: {counts}")
    except TorchwheelError as error:
        print(error, file=sys.stderr)
        return error.status
    text = json.dumps({"schema": 1, "releases": releases}, indent=1, sort_keys=True) + "\n"
    files.write_text(target, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
