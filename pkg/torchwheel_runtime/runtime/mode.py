"""What may be tried when an extension is loaded: TORCHWHEEL_MODE."""

import warnings
from collections.abc import Mapping
from typing import Literal, get_args

MODE_VARIABLE = "TORCHWHEEL_MODE"

Mode = Literal["auto", "prebuilt", "jit", "fallback", "error"]
"""auto: prebuilt, else built at first use, else plain PyTorch. prebuilt: build nothing. jit: ignore
the prebuilt library. fallback: plain PyTorch. error: like auto, but plain PyTorch in place of a
GPU's kernels is an error."""


def read_mode(environ: Mapping[str, str]) -> Mode:
    """The mode that TORCHWHEEL_MODE names; an unknown one is a warning, and auto."""
    name = environ.get(MODE_VARIABLE) or "auto"
    for known in get_args(Mode):
        if name == known:
            return known  # type: ignore[no-any-return]
    warn(f"{MODE_VARIABLE}={name}: one of {', '.join(get_args(Mode))} expected; auto is taken")
    return "auto"


def may_load(chosen: Mode) -> bool:
    """Whether a prebuilt library may be loaded."""
    return chosen in ("auto", "prebuilt", "error")


def may_build(chosen: Mode) -> bool:
    """Whether a library may be built at first use."""
    return chosen in ("auto", "jit", "error")


def warn(text: str) -> None:
    """Warn whoever called the caller, in one line: what is foreign in the text is escaped."""
    from torchwheel_runtime.text import (  # noqa: PLC0415 - the import of an extension needs none
        escape,
    )

    warnings.warn(escape(text), RuntimeWarning, stacklevel=3)
