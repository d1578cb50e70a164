"""Loads the module of an ordinary extension (torch/extension.h), prebuilt or built here."""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torchwheel.builder.extension import Extension
from torchwheel.runtime import loader as modes
from torchwheel.runtime import prebuilt
from torchwheel.runtime.prebuilt import load_problem
from torchwheel.runtime.status import Refusal

if TYPE_CHECKING:  # an import loads no library
    from torchwheel.loadable import LoadableFile


def load_module(extension: Extension, package: Path) -> ModuleType:
    """The extension module of an ordinary extension, as TORCHWHEEL_MODE says.

    If it is not prebuilt for this torch and Python, it is built now, which takes a minute or more.
    So call this when the module is first needed.

    Args:
        extension: the description of the extension.
        package: the folder of its package.

    Raises:
        ImportError: it is not prebuilt and cannot be built; the message says what to do.
    """
    if extension.module is None:
        raise ValueError("an ordinary extension names its `module`")
    mode = modes.read_mode(os.environ)
    refusals: tuple[Refusal, ...] = ()
    if modes.may_load(mode):
        libraries = prebuilt.find_libraries(extension, package)
        refusal = prebuilt.refusal_of(libraries, lambda: load_problem(extension, ask_driver=False))
        if refusal:
            refusals = (refusal,)
        else:
            _, module, refusals = prebuilt.load_first(extension, package, libraries)
            if module is not None:
                return module
    if modes.may_build(mode):
        from torchwheel.runtime.build import obtain_library  # noqa: PLC0415 - costs nothing until needed

        try:
            return import_from(extension.module.name, obtain_library(extension, package, None)[0])
        except Exception as error:  # any failure is one more reason
            refusals = (*refusals, Refusal("jit build", prebuilt.reason_of(error)))
    why = "; ".join(map(str, refusals)) or f"{modes.MODE_VARIABLE}={mode}"
    raise ImportError(
        f"{extension.module.name}: {why}. `torchwheel doctor {extension.package}` says what fixes "
        "it.",
        name=extension.module.name,
    )


def import_from(name: str, library: "LoadableFile") -> ModuleType:
    """Import a verified extension module, under that name."""

    def import_by(path: str) -> ModuleType:
        loader = importlib.machinery.ExtensionFileLoader(name, path)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if spec is None:
            raise ImportError(f"{path}: no extension module of this Python")
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        module.__file__ = spec.origin = str(library.path)
        return module

    sys.modules[name] = module = library.load_by(import_by)
    return module
