"""The output of `torchwheel doctor`: a table of 80 columns with the verdict at its end, or JSON.

docs/doctor.md lists the keys of the JSON.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchwheel_runtime.arch.model import BRANDS, CudaArch, RocmArch
from torchwheel_runtime.doctor.case import CacheState, Package, Report, Verdict
from torchwheel_runtime.doctor.dist_info import Kind
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.doctor.package_rules import irregular_text
from torchwheel_runtime.machine.facts import Absent, Machine
from torchwheel_runtime.runtime.status import WAY_TEXTS, OperatorStatus
from torchwheel_runtime.text import WIDTH, escape, hanging_lines, join_names, size_text

_LABEL = 10
_TEXT = WIDTH - _LABEL - 1


def row(label: str, text: str) -> list[str]:
    """One row. A path that is too long loses its beginning."""
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib fails where there is none
    words = _printable(text).replace(f"{home}/", "~/").split()
    fitting = (word if len(word) <= _TEXT else f"…{word[1 - _TEXT :]}" for word in words)
    return unwrapped_row(label, " ".join(fitting))


def rows(label: str, texts: Iterable[str]) -> Iterator[str]:
    """A row for each text, with the label before the first; "none" if there is no text."""
    for number, text in enumerate(list(texts) or ["none"]):
        yield from row("" if number else label, text)


def unwrapped_row(label: str, text: str) -> list[str]:
    """One row whose words are never cut, so that a command can be copied."""
    return hanging_lines(f"{label:<{_LABEL}} ", _printable(text))


def _printable(text: str) -> str:
    """Text in one line; characters that are not printable, e.g. cursor codes, are escaped."""
    return escape(" ".join(text.split()))


def machine_text(machine: Machine, variables: Mapping[str, str], cache: CacheState) -> str:
    """The machine: a row for each fact."""
    host = machine.host
    glibc = f"glibc {machine.glibc}" if machine.glibc else "a C library that is not glibc"
    compiler = host and f"{host.family} {host.version}, {host.path}"
    settings = [f"{name}={value}" for name, value in variables.items()]
    lines = [
        *row("Python", f"{machine.python}, {sys.executable}"),
        *row("system", f"{machine.platform}, {glibc}"),
        *row("torch", _torch_text(machine)),
        *row("driver", _driver_text(machine)),
        *rows("GPU", _gpu_texts(machine)),
        *row("compiler", compiler or f"none: {machine.host_problem}"),
        *rows("toolkit", _toolkit_texts(machine)),
        *row("cache", _cache_text(cache)),
        *(rows("variables", settings) if settings else ()),
    ]
    return "\n".join(lines)


def _torch_text(machine: Machine) -> str:
    torch, problem = machine.torch, machine.torch_problem
    if torch is None:
        return f"none: {problem}"
    built = f"CUDA {torch.cuda}" if torch.cuda else "CPU only"
    built = f"HIP {torch.hip}" if torch.hip else built
    text = f"{torch.version} ({built}), {torch.folder}"
    return f"{text}; {problem}" if problem else text


def _driver_text(machine: Machine) -> str:
    driver = machine.driver
    if driver is None:
        return f"none: {machine.driver_problem}"
    return f"{driver.version}, serves CUDA {driver.cuda}" if driver.cuda else driver.version


def _gpu_texts(machine: Machine) -> list[str]:
    if machine.gpus:
        return [f"{gpu.index}: {gpu.name}, {gpu.arch}" for gpu in machine.gpus]
    return [f"none: {machine.gpus_problem}" if machine.driver else "none"]


def _toolkit_texts(machine: Machine) -> Iterator[str]:
    """One text for all good toolkits of a place, one for each toolkit with a problem."""
    good: dict[str, list[str]] = {}
    for toolkit in machine.toolkits:
        name = f"{BRANDS[toolkit.backend]} {toolkit.release}".strip()
        if toolkit.problem:
            yield f"{name}, {toolkit.root} ({toolkit.where}): {toolkit.problem}"
        else:
            releases = good.setdefault(toolkit.where, [str(toolkit.root)])
            releases += [] if name in releases else [name]
    for where, (root, *releases) in good.items():
        yield f"{join_names(releases)} ({where}{f', {root}' if len(releases) == 1 else ''})"


def _cache_text(cache: CacheState) -> str:
    parts = join_names(f"{name} {size_text(size)}" for name, size in cache.sizes.items())
    text = f"{cache.folder}: {size_text(sum(cache.sizes.values()))}{f' ({parts})' if parts else ''}"
    corrupt = f"; {len(cache.corrupt)} corrupt" if cache.corrupt else ""
    return f"{text}{corrupt}{f'; {cache.problem}' if cache.problem else ''}"


def package_text(package: Package) -> str:
    """The package: what its operators run on, and its native libraries."""
    info, status = package.info, package.status
    lines = row("package", package.title)
    if package.root:
        kind = _KIND_TEXTS[info.kind] if info else ", without a dist-info"
        lines += row("  place", f"{package.root}{kind}")
    if info and info.claims:
        claims = info.claims
        archs = f", for {' '.join(map(str, claims.archs))}" if claims.archs else ""
        lines += row("  claims", f"{claims.variant}, torch{claims.torch_range}{archs}")
        flags = dict.fromkeys(flag for library in claims.flags for flag in library.flags)
        lines += row("  flags", ", ".join(flags)) if flags else []
    elif info and info.torch is not None:
        lines += row("  requires", f"torch{info.torch}")
    lines += row("  import", _import_text(package))
    if status:
        lines += row("  mode", status.mode)
        lines += rows("  runs on", _operator_texts(status.operators))
        if status.choices:
            lines += rows("  choice", status.choices)
    others = [native for native in package.natives if not _is_notable(native)]
    for native in package.natives:
        if native not in others:
            lines += _library_rows(native)
    if others:
        more = " more" if len(others) < len(package.natives) else ""
        lines += row("libraries", f"{len(others)}{more}, with no GPU code and nothing of torch")
    return "\n".join(lines)


_KIND_TEXTS: dict[Kind, str] = {
    "wheel": "",
    "egg": ", an egg that no wheel installed",
    "zipped egg": ", a zip file (.egg), whose libraries are not judged",
    "setup.py": ", installed by setup.py, no wheel",
    "egg-link": ", a link to a source tree",
}


def _import_text(package: Package) -> str:
    file, root, how = package.imported.file, package.root, package.imported.how
    text = f"{how}: {join_names(package.imported.words)}" if package.imported.words else how
    elsewhere = file and root and not file.is_relative_to(root)
    return f"{text}, from {file}" if elsewhere else text


def _operator_texts(operators: Iterable[OperatorStatus]) -> list[str]:
    """What operators run on, and why earlier steps failed; one text for those that are alike."""
    names: dict[str, list[str]] = {}
    for operator in operators:
        library = f", {operator.library.name}" if operator.library else ""
        refused = f" ({'; '.join(map(str, operator.refusals))})" if operator.refusals else ""
        text = f"{WAY_TEXTS[operator.way]}{library}{refused}"
        names.setdefault(text, []).append(operator.operator)
    return [f"{join_names(alike)}: {text}" for text, alike in names.items()]


def _is_notable(native: NativeLibrary) -> bool:
    """Whether the library has GPU code, uses torch or has a fault."""
    links = native.links
    if native.code or native.problem or native.code_problem or links is None:
        return True
    return bool(links.torch_symbols or links.undefined or links.absent or links.outdated)


def _library_rows(native: NativeLibrary) -> Iterator[str]:
    yield from row("library", f"{native.name}, {'loaded' if native.loaded else 'not loaded'}")
    links = native.links
    if links is None:
        yield from row("", str(native.problem))
        return
    undefined = f"{len(links.undefined)} are nowhere" if links.undefined else "all are here"
    for name, text in (
        ("GPU code", _gpu_code(native)),
        ("symbols", f"{len(links.torch_symbols)} of torch; {undefined}"),
        ("glibc", f"{native.glibc} or later" if native.glibc else ""),
        ("runtime", _runtime_text(native)),
        ("absent", join_names(links.absent)),
        ("too old", join_names(f"{path} has no {version}" for path, version in links.outdated)),
    ):
        if text:
            yield from row(f"  {name}", text)


def _gpu_code(native: NativeLibrary) -> str:
    if native.code_problem:
        return f"not read: {native.code_problem}"
    if not native.code:
        return "none"
    kind = "AMD" if native.backend == "rocm" else "SASS"
    sass = f"{kind} {' '.join(map(str, native.archs))}" if native.archs else f"no {kind}"
    return f"{sass}; PTX {' '.join(map(str, native.ptx))}" if native.ptx else sass


def _runtime_text(native: NativeLibrary) -> str:
    if native.runtime is None:
        return "CUDA, static" if native.backend == "cuda" else ""
    path = native.links.found.get(native.runtime) if native.links else None
    return f"{native.runtime}: {path or 'not found'}"


_LINE = "-" * WIDTH


def report_text(report: Report) -> str:
    """The machine, each package, and the verdict on each at the end."""
    parts = [machine_text(report.machine, report.variables, report.cache)]
    parts += map(package_text, report.packages)
    parts += map(_verdict_text, report.verdicts)
    return f"\n{_LINE}\n".join(parts)


def _verdict_text(verdict: Verdict) -> str:
    """The last lines: other findings, then the first cause and its fix."""
    lines: list[str] = []
    for finding in verdict.findings[1:]:
        lines += row("also", finding.fact)
    lines += row("fine" if verdict.ok else "wrong", verdict.says)
    if verdict.fix:
        lines += unwrapped_row("to fix it", verdict.fix)
    return "\n".join(lines)


SCHEMA = 1


def report_json(report: Report) -> str:
    """Byte-stable JSON without a final newline."""
    document = {
        "schema": SCHEMA,
        "ok": report.ok,
        "machine": _plain(report.machine),
        "variables": dict(report.variables),
        "cache": {**_plain(report.cache), "corrupt": list(report.cache.corrupt.values())},
        "packages": [_package(package) for package in report.packages],
        "verdicts": [
            {
                "ok": verdict.ok,
                "findings": [
                    {"name": one.rule, "says": one.fact, "fix": one.fix} for one in verdict.findings
                ],
                "says": verdict.says,
                "fix": verdict.fix,
            }
            for verdict in report.verdicts
        ],
    }
    return json.dumps(document, indent=1)


def _package(package: Package) -> dict[str, Any]:
    info, imported, status = package.info, package.imported, package.status
    return {
        "name": package.name,
        "module": package.module,
        "root": _plain(package.root),
        "version": info.version if info else None,
        "kind": info.kind if info else None,
        "claims": _plain(info.claims) if info else None,
        "requires_torch": info.torch if info else None,
        "problems": [*info.problems, *map(irregular_text, info.irregular)] if info else [],
        "import": {
            "how": imported.how,
            "words": list(imported.words),
            "where": imported.where,
            "file": _plain(imported.file),
        },
        "mode": status.mode if status else None,
        "choices": list(status.choices) if status else [],
        "waiting_gpus": list(status.waiting_gpus) if status else [],
        "operators": _plain(status.operators) if status else [],
        "libraries": [_native(native) for native in package.natives],
    }


def _native(native: NativeLibrary) -> dict[str, Any]:
    links = native.links
    return {
        "name": native.name,
        "path": _plain(native.path),
        "loaded": native.loaded,
        "problem": native.problem,
        "machine": native.machine or None,
        "backend": native.backend,
        "archs": [str(arch) for arch in native.archs],
        "ptx": [str(arch) for arch in native.ptx],
        "gpu_code_problem": native.code_problem,
        "glibc": native.glibc,
        "runtime": native.runtime,
        "needed": list(native.needed),
        "found": _plain(links.found) if links else {},
        "absent": _plain(links.absent) if links else {},
        "torch_symbols": len(links.torch_symbols) if links else None,
        "undefined": _plain(links.undefined) if links else [],
        "too_old": _plain(links.outdated) if links else [],
    }


_AS_TEXT = (CudaArch, RocmArch, Absent)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of the model
    """A value as JSON has it: a dataclass by its fields, an arch, a path or a reason as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, _AS_TEXT):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
