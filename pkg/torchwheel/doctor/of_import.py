"""Findings of the import itself, for what no other rule explains."""

import re
from collections.abc import Iterator

from torchwheel.doctor.model import Case, Finding
from torchwheel.shown import listed

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_LIBRARY = re.compile(r"(lib(?:c10|torch)\w*\.so): cannot open shared object file")
_FAULTHANDLER = "-X faulthandler "


def dependency(case: Case) -> Iterator[Finding]:
    """A module that the package imports is not installed."""
    package = case.package
    for words in package.imported.words:
        found = _NO_MODULE.match(words)
        if found and (name := found[1].partition(".")[0]) not in (package.module, "torch"):
            says = f"{package.module} imports {name}, which is not installed"
            yield Finding("dependency", says, f"`pip install {name}`")


def imported(case: Case) -> Iterator[Finding]:
    """The import raised, crashed or hung."""
    package, done = case.package, case.package.imported
    where = f" ({done.where})" if done.where else ""
    if done.how == "imported" or (done.how == "not found" and package.info is None):
        return
    if _before_torch(case):
        says = f"{package.module} loads its library before torch is imported{where}"
        yield Finding("import-order", says, "`import torch` first")
        return
    words = listed(done.words)
    says, options = {
        # The error, and the first of those it came from.
        "raised": (
            f"raises {', from '.join(dict.fromkeys((*done.words[:1], *done.words[-1:])))}",
            "",
        ),
        "killed": (f"crashes Python with {words}", _FAULTHANDLER),
        "left": (f"ends Python with {words}", _FAULTHANDLER),
        "hung": (f"did not end in {words}", _FAULTHANDLER),
        "not found": ("finds no such module", ""),
    }[done.how]
    yield Finding(
        "import",
        f"import {package.module} {says}{where}",
        f"`python {options}-c 'import {package.module}'` shows more, for the authors of "
        f"{package.name}",
    )


def _before_torch(case: Case) -> bool:
    """Whether a library of torch was not found that torch, once imported, has brought in."""
    torch = case.machine.torch
    found = filter(None, map(_NO_LIBRARY.search, case.package.imported.words))
    return torch is not None and any((torch.folder / "lib" / one[1]).is_file() for one in found)
