"""Gate `runtime`: the libraries need only what the table of their backend allows."""

from pathlib import PurePosixPath

from torchwheel.check.facts import Facts, GateError
from torchwheel.check.limits import Limits
from torchwheel.check.runtime_table import allowed, why


def runtime(facts: Facts, _: Limits) -> str:
    """Every NEEDED soname is in the table (data/runtime.json) or in the wheel itself."""
    claims, libraries = facts.claims, facts.libraries.read()
    own = {library.soname or PurePosixPath(library.name).name for library in libraries}
    permitted = allowed(claims) | own
    for library in libraries:
        if outside := sorted(set(library.needed) - permitted):
            reason = why(claims.backend or claims.abi) if claims.abi != "pure" else "it is pure"
            raise GateError(
                f"{library.name} needs {', '.join(outside)}, which is not allowed: {reason}"
            )
    if unused := set(claims.borrowed) - {name for lib in libraries for name in lib.needed}:
        raise GateError(f"claims to need {', '.join(sorted(unused))} of torch, but does not")
    needed = sorted({name for library in libraries for name in library.needed} - own)
    return f"needs {', '.join(needed)}" if needed else "needs nothing"
