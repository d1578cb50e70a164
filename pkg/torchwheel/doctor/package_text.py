"""A package and its libraries, as the doctor prints them."""

from collections.abc import Iterator

from torchwheel.doctor.model import Package
from torchwheel.doctor.native import Native
from torchwheel.doctor.rows import row, rows
from torchwheel.runtime.status import OperatorStatus
from torchwheel.shown import listed

_WAYS = {
    "waiting": "to be built at its first call on a GPU",
    "fallback": "plain PyTorch",
}


def package_text(package: Package) -> str:
    """The package: what its operators run on, and what each of its libraries is."""
    info, status = package.info, package.status
    lines = row("package", package.title)
    if package.root:
        lines += row("  place", f"{package.root}{'' if info else ', without a dist-info'}")
    if info and info.claims:
        claims = info.claims
        archs = f", for {' '.join(claims.archs)}" if claims.archs else ""
        lines += row("  claims", f"{claims.variant}, torch{claims.torch}{archs}")
    elif info and info.torch is not None:
        lines += row("  requires", f"torch{info.torch}")
    lines += row("  import", _import(package))
    if status:
        lines += row("  mode", status.mode)
        lines += rows("  runs on", map(_operator, status.operators))
    plain = [native for native in package.natives if not _tells(native)]
    for native in package.natives:
        if native not in plain:
            lines += _native(native)
    if plain:
        more = " more" if len(plain) < len(package.natives) else ""
        lines += row("libraries", f"{len(plain)}{more}, with no GPU code and nothing of torch")
    return "\n".join(lines)


def _import(package: Package) -> str:
    file, root, how = package.imported.file, package.root, package.imported.how
    told = f"{how}: {listed(package.imported.words)}" if package.imported.words else how
    elsewhere = file and root and not file.is_relative_to(root)
    return f"{told}, from {file}" if elsewhere else told


def _operator(operator: OperatorStatus) -> str:
    """What it runs on, and the steps before that which came to nothing."""
    library = f", {operator.library.name}" if operator.library else ""
    refused = f" ({'; '.join(map(str, operator.refusals))})" if operator.refusals else ""
    return f"{operator.operator}: {_WAYS.get(operator.way, operator.way)}{library}{refused}"


def _tells(native: Native) -> bool:
    """Whether there is something to say of it: GPU code, torch, or a fault."""
    links = native.links
    if native.code or native.problem or native.code_problem or links is None:
        return True
    return bool(links.torch_symbols or links.undefined or links.absent or links.old)


def _native(native: Native) -> Iterator[str]:
    yield from row("library", f"{native.name}, {'loaded' if native.loaded else 'not loaded'}")
    links = native.links
    if links is None:
        yield from row("", str(native.problem))
        return
    for name, text in (
        ("GPU code", _code(native)),
        ("symbols", f"{len(links.torch_symbols)} of torch; {_undefined(len(links.undefined))}"),
        ("glibc", f"{native.glibc} or later" if native.glibc else ""),
        ("runtime", _runtime(native)),
        ("absent", listed(links.absent)),
        ("too old", listed(f"{path} has no {version}" for path, version in links.old)),
    ):
        if text:
            yield from row(f"  {name}", text)


def _code(native: Native) -> str:
    if native.code_problem:
        return f"not read: {native.code_problem}"
    if not native.code:
        return "none"
    kind = "AMD" if native.backend == "rocm" else "SASS"
    sass = f"{kind} {' '.join(map(str, native.archs))}" if native.archs else f"no {kind}"
    return f"{sass}; PTX {' '.join(map(str, native.ptx))}" if native.ptx else sass


def _undefined(count: int) -> str:
    return f"{count} are nowhere" if count else "all are here"


def _runtime(native: Native) -> str:
    if native.runtime is None:
        return "CUDA, static" if native.backend == "cuda" else ""
    there = native.links.found.get(native.runtime) if native.links else None
    return f"{native.runtime}: {there or 'not found'}"
