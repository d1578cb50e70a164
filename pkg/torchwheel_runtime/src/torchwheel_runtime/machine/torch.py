"""Finds the torch of this Python, imported or only installed."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from torchwheel_runtime.machine.facts import Absent, Torch
from torchwheel_runtime.machine.probe import file_text, program_output

_IMPORT_TORCH = "import sys; sys.path[:] = sys.argv[1:]; import torch"
_SECONDS = 120


def find_torch() -> Torch | Absent:
    """The imported torch, else the installed one, which is not imported.

    An imported torch costs microseconds, an installed one the reading of two files.
    """
    loaded = sys.modules.get("torch")
    if loaded is not None and (torch := _torch_of_module(loaded)):
        return torch
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError):  # a substitute for torch, without a spec
        spec = None
    if spec is None:
        return Absent("torch is not installed")
    if spec.origin is None:
        places = ", ".join(spec.submodule_search_locations or ())
        return Absent(f"torch is broken: {places} has no __init__.py")
    return read_torch(Path(spec.origin).parent)


def read_torch(folder: Path) -> Torch | Absent:
    """The facts of the torch in `folder`, from its files."""
    file = folder / "version.py"
    text = file_text(file)
    if isinstance(text, Absent):
        return Absent(f"torch is broken: {text.reason}")
    values = string_constants(text)
    version = values.get("__version__")
    if not version:
        return Absent(f"torch is broken: {file} tells no version")
    cuda, hip, xpu, rocm = map(values.get, ("cuda", "hip", "xpu", "rocm"))
    return Torch(version, cuda, hip, folder, _has_old_abi(folder), xpu, rocm)


def string_constants(source: str) -> dict[str, str]:
    """String constants of a module, e.g. {"__version__": "2.13.0", "cuda": "13.0"}."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, str] = {}
    for line in body:
        if not isinstance(line, ast.Assign | ast.AnnAssign):
            continue
        value = line.value
        for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                found.pop(target.id, None)
                if isinstance(value.value, str):
                    found[target.id] = value.value
    return found


def import_problem(seconds: float = _SECONDS) -> Absent | None:
    """Why torch cannot be imported; None if it can. Starts a Python, which takes seconds."""
    loaded = sys.modules.get("torch")
    if loaded is not None and _torch_of_module(loaded):
        return None
    answer = program_output([sys.executable, "-c", _IMPORT_TORCH, *sys.path], seconds=seconds)
    if not isinstance(answer, Absent):
        return None
    fix = "stop `python -c 'import torch'` with Ctrl-C to see what it waits for"
    return Absent(
        f"torch cannot be imported: {answer.reason}",
        fix if answer.problem else None,
        answer.problem,
    )


def _torch_of_module(torch: ModuleType) -> Torch | None:
    """The facts of an imported torch; None if its import has not ended, or for a substitute."""
    built, file = getattr(torch, "version", None), getattr(torch, "__file__", None)
    version = getattr(torch, "__version__", None)
    if built is None or not file or not version:
        return None
    native = getattr(torch, "_C", None)
    return Torch(
        version=str(version),
        cuda=getattr(built, "cuda", None),
        hip=getattr(built, "hip", None),
        folder=Path(file).parent,
        old_abi=not getattr(native, "_GLIBCXX_USE_CXX11_ABI", True),
        xpu=getattr(built, "xpu", None),
        rocm=getattr(built, "rocm", None),
    )


def _has_old_abi(folder: Path) -> bool:
    from torchwheel_runtime.builder.variables import (  # noqa: PLC0415 - not for a plain import
        has_old_abi,
    )
    from torchwheel_runtime.errors import UsageError  # noqa: PLC0415

    try:
        return has_old_abi(folder.parent)
    except UsageError:  # without the file: the compiler's default
        return False
