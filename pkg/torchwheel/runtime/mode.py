"""TORCHWHEEL_MODE: which of the ways to run an operator may be taken."""

import warnings
from collections.abc import Mapping
from typing import Literal, get_args

VARIABLE = "TORCHWHEEL_MODE"

Mode = Literal["auto", "prebuilt", "jit", "fallback", "error"]
"""auto: prebuilt, else built at first use, else plain PyTorch. prebuilt: nothing is built. jit: the
prebuilt library is passed over. fallback: plain PyTorch. error: as auto, but where plain PyTorch
would run in place of a GPU's kernels, that is an error."""


def mode(environ: Mapping[str, str]) -> Mode:
    """The mode asked for; a word that is none is a warning, and means auto."""
    asked = environ.get(VARIABLE) or "auto"
    for known in get_args(Mode):
        if asked == known:
            return known  # type: ignore[no-any-return]
    warnings.warn(
        f"{VARIABLE}={asked}: one of {', '.join(get_args(Mode))} expected; auto is taken",
        RuntimeWarning,
        stacklevel=2,
    )
    return "auto"


def may_load(chosen: Mode) -> bool:
    """Whether a prebuilt library may be loaded."""
    return chosen in ("auto", "prebuilt", "error")


def may_build(chosen: Mode) -> bool:
    """Whether a library may be built at first use."""
    return chosen in ("auto", "jit", "error")
