"""The torch of this Python: its own answers, or what its files say."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from torchwheel.machine.facts import Absent, Torch
from torchwheel.machine.probe import file_text, program_output

_IMPORT_TORCH = "import sys; sys.path[:] = sys.argv[1:]; import torch"
_SECONDS = 120


def find_torch() -> Torch | Absent:
    """The imported torch if there is one, else the installed one, which is not imported.

    It costs microseconds where torch is imported, and the reading of two files elsewhere.
    """
    loaded = sys.modules.get("torch")
    if loaded is not None and (told := _torch_of_module(loaded)):
        return told
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError):  # a stand-in for torch without a spec
        spec = None
    if spec is None:
        return Absent("torch is not installed")
    if spec.origin is None:
        places = ", ".join(spec.submodule_search_locations or ())
        return Absent(f"torch is broken: {places} has no __init__.py")
    return read_torch(Path(spec.origin).parent)


def read_torch(folder: Path) -> Torch | Absent:
    """What the files of the torch in `folder` say of it."""
    file = folder / "version.py"
    text = file_text(file)
    if isinstance(text, Absent):
        return Absent(f"torch is broken: {text.reason}")
    said = string_constants(text)
    version = said.get("__version__")
    if not version:
        return Absent(f"torch is broken: {file} tells no version")
    return Torch(version, said.get("cuda"), said.get("hip"), folder, _has_old_abi(folder))


def string_constants(source: str) -> dict[str, str]:
    """Names that a module sets to a text, e.g. {"__version__": "2.13.0", "cuda": "13.0"}."""
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


def import_problem() -> Absent | None:
    """Why torch cannot be imported; None if it can. It starts a Python: seconds."""
    loaded = sys.modules.get("torch")
    if loaded is not None and _torch_of_module(loaded):
        return None
    answer = program_output([sys.executable, "-c", _IMPORT_TORCH, *sys.path], seconds=_SECONDS)
    if isinstance(answer, Absent):
        return Absent(f"torch cannot be imported: {answer.reason}")
    return None


def _torch_of_module(torch: ModuleType) -> Torch | None:
    """Nothing from a module whose import has not ended, or that stands in for torch."""
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
    )


def _has_old_abi(folder: Path) -> bool:
    from torchwheel.builder.discovery import has_old_abi  # noqa: PLC0415 - not for a plain import
    from torchwheel.errors import UsageError  # noqa: PLC0415

    try:
        return has_old_abi(folder.parent)
    except UsageError:  # the file is not there: the compiler's default, then
        return False
