"""Loads the module of an ordinary extension (torch/extension.h), prebuilt or built here."""

import os
from pathlib import Path
from types import ModuleType

from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.runtime import prebuilt
from torchwheel_runtime.runtime.mode import MODE_VARIABLE, may_build, may_load, read_mode
from torchwheel_runtime.runtime.prebuilt import load_problem
from torchwheel_runtime.runtime.status import Refusal


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
    mode = read_mode(os.environ)
    refusals: tuple[Refusal, ...] = ()
    if may_load(mode):
        libraries = prebuilt.find_libraries(extension, package)
        refusal = prebuilt.refusal_of(libraries, lambda: load_problem(extension, ask_driver=False))
        if refusal:
            refusals = (refusal,)
        else:
            _, module, refusals = prebuilt.load_first(extension, package, libraries)
            if module is not None:
                return module
    if may_build(mode):
        from torchwheel_runtime.runtime.build import (  # noqa: PLC0415 - costs nothing until needed
            obtain_library,
        )

        try:
            library, _ = obtain_library(extension, package, None)
            return prebuilt.import_from(extension.module.name, library)
        except Exception as error:  # any failure is one more reason
            refusals = (*refusals, Refusal("jit build", prebuilt.reason_of(error)))
    why = "; ".join(map(str, refusals)) or f"{MODE_VARIABLE}={mode}"
    raise ImportError(
        f"{extension.module.name}: {why}. `torchwheel doctor {extension.package}` says what fixes "
        "it.",
        name=extension.module.name,
    )
