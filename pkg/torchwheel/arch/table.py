"""Which archs each release of a toolkit can compile, read from the data file."""

import functools
from collections.abc import Mapping

from torchwheel import data
from torchwheel.arch.model import Backend


@functools.cache
def archs(backend: Backend) -> Mapping[str, tuple[str, ...]]:
    """Archs that each release of a toolkit can compile, e.g. {"13.0": ("7.5", …), …}."""
    return {version: tuple(names) for version, names in data.read("archs.json")[backend].items()}
