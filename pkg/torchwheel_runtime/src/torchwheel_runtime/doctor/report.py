"""The output of `torchwheel doctor`: the verdict and a table of 80 columns, or JSON.

docs/doctor.md lists the keys of the JSON.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import BRANDS, CudaArch, RocmArch
from torchwheel_runtime.doctor.case import OWN_PREFIX, CacheState, Package, Report, Verdict
from torchwheel_runtime.doctor.dist_info import Kind
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.doctor.package_rules import irregular_text
from torchwheel_runtime.machine.facts import Absent, Machine
from torchwheel_runtime.runtime.status import OperatorStatus
from torchwheel_runtime.text import WIDTH, escape, hanging_lines, join_names, size_text
from torchwheel_runtime.validate.torch_rules import OF_ITS_AUTHORS
from torchwheel_runtime.variant_format import misfit

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


def machine_text(report: Report, *, verbose: bool) -> str:
    """The machine: a row for each fact."""
    machine, host = report.machine, report.machine.host
    compiler = host and f"{host.family} {host.version}, {host.path}"
    waits = any(package.status and package.status.waits for package in report.packages)
    settings = [
        f"{name}={value}"
        for name, value in report.variables.items()
        if verbose or name.startswith(OWN_PREFIX)
    ]
    lines = [
        *row("torch", _torch_text(machine)),
        *row("driver", _driver_text(machine)),
        *rows("GPU", _gpu_texts(machine)),
    ]
    if verbose or waits:
        lines += row("compiler", compiler or f"none: {machine.host_problem}")
        lines += rows("toolkit", _toolkit_texts(machine))
    if verbose:
        glibc = f"glibc {machine.glibc}" if machine.glibc else "a C library that is not glibc"
        lines += row("cache", _cache_text(report.cache))
        lines += row("Python", f"{machine.python}, {sys.executable}")
        lines += row("system", f"{machine.platform}, {glibc}")
    return "\n".join([*lines, *(rows("variables", settings) if settings else ())])


def _torch_text(machine: Machine) -> str:
    torch, problem = machine.torch, machine.torch_problem
    if torch is None:
        return f"none: {problem}"
    built = f"CUDA {torch.cuda}" if torch.cuda else "CPU only"
    built = f"HIP {torch.hip}" if torch.hip else built
    built = f"ROCm {torch.rocm}, {built}" if torch.rocm else built
    text = f"{torch.version} ({built}), {torch.folder}"
    return f"{text}; {problem}" if problem else text


def _driver_text(machine: Machine) -> str:
    driver = machine.driver
    if driver is None:
        return f"none: {machine.driver_problem}"
    return f"{driver.version}, serves CUDA {driver.cuda}" if driver.cuda else driver.version


def _gpu_texts(machine: Machine) -> list[str]:
    """One text for all GPUs that are alike."""
    if not machine.gpus:
        return [f"none: {machine.gpus_problem}" if machine.driver else "none"]
    alike: dict[str, list[str]] = {}
    for gpu in machine.gpus:
        alike.setdefault(f"{gpu.name}, {gpu.arch}", []).append(str(gpu.index))
    return [f"{join_names(indices)}: {name}" for name, indices in alike.items()]


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


def package_text(
    package: Package, gpus: Sequence[Gpu], *, verbose: bool, driver: Driver | None = None
) -> str:
    """The package: its kernels, what its operators run on, its libraries; empty if it has none."""
    status = package.status
    lines = row("package", package.title)
    if labels := list(_label_texts(package, gpus, driver)):
        lines += rows("  label", labels)
    if kernels := _kernel_texts(package, gpus):
        lines += rows("  kernels", kernels)
    if status:
        label = "runs on" if gpus or status.falls_back else "on a GPU"
        lines += rows(f"  {label}", _operator_texts(status.operators))
        lines += row("  mode", status.mode) if verbose else []
    if verbose:
        lines += _package_details(package)
    return "\n".join(lines) if len(lines) > 1 else ""


def _label_texts(package: Package, gpus: Sequence[Gpu], driver: Driver | None) -> Iterator[str]:
    """The label of a labelled wheel, whether it fits, and the command that takes the best one."""
    cuda = driver.cuda if driver else None
    for label, properties in package.info.labels.items() if package.info else ():
        fault = misfit(properties, cuda, [gpu.arch for gpu in gpus])
        if fault is None and (properties or not gpus):
            yield f"{label}, which fits this machine"
            continue
        why = f"is for other machines: {fault}" if fault else "has no kernels, and there is a GPU"
        where = f" {OF_ITS_AUTHORS}" if package.claims else ""
        command = "uv --preview-features wheel-variants pip install --reinstall"
        yield f"{label}, which {why}; `{command}{where} {package.name}` takes the best"


def _kernel_texts(package: Package, gpus: Sequence[Gpu]) -> list[str]:
    """The kernel library of each kind of GPU, and why; else the GPU code of the libraries."""
    status = package.status
    if status is None or not status.choices:
        names: dict[str, list[str]] = {}
        for native in package.loaded:
            if native.backend:
                names.setdefault(_gpu_code(native), []).append(native.name)
        return [f"{code}, in {_first_of(alike)}" for code, alike in names.items()]
    front_end, *of_gpus = status.choices
    # There is a line for each GPU. One that torch has started may not be visible any more.
    kinds: Sequence[object] = of_gpus
    if len(gpus) == len(of_gpus):
        kinds = [(gpu.name, gpu.arch, gpu.index in status.waiting_gpus) for gpu in gpus]
    alike: dict[object, list[str]] = {}
    for kind, text in zip(kinds, of_gpus, strict=True):
        alike.setdefault(kind, []).append(text)
    same = (f"; the same on {len(texts) - 1} more" * (len(texts) > 1) for texts in alike.values())
    return [front_end, *(texts[0] + next(same) for texts in alike.values())]


def _first_of(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _package_details(package: Package) -> Iterator[str]:
    """Rows on the installation and its libraries."""
    info = package.info
    if package.root:
        kind = _KIND_TEXTS[info.kind] if info else ", without a dist-info"
        yield from row("  place", f"{package.root}{kind}")
    if info and info.claims:
        claims = info.claims
        archs = f", for {' '.join(map(str, claims.archs))}" if claims.archs else ""
        yield from row("  claims", f"{claims.variant}, torch{claims.torch_range}{archs}")
        flags = dict.fromkeys(flag for library in claims.flags for flag in library.flags)
        yield from row("  flags", ", ".join(flags)) if flags else ()
    elif info and info.torch is not None:
        yield from row("  requires", f"torch{info.torch}")
    yield from row("  import", _import_text(package))
    unused, plain = list[str](), 0
    for native in package.natives:
        part = info.claims.part_of(native.name) if info and info.claims else None
        if part and package.loaded and not native.loaded:  # another part is loaded in its place
            unused.append(part.name)
        elif _is_notable(native):
            yield from _library_rows(native)
        else:
            plain += 1
    if unused:
        yield from row("unused", f"{join_names(unused)}: for other torches or GPUs")
    if plain:
        yield from row("libraries", f"{plain} more, with no GPU code and nothing of torch")


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
        names.setdefault(operator.text, []).append(operator.operator)
    if len(names) == 1 and len(every := next(iter(names.values()))) > 1:
        return [f"all {len(every)} operator families: {next(iter(names))}"]
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


def report_text(report: Report, *, verbose: bool = False) -> str:
    """The verdicts, then what matters: each package's kernels, torch, driver, GPUs."""
    gpus, driver = report.machine.gpus, report.machine.driver
    parts = ["\n".join(map(verdict_text, report.verdicts))]
    parts += (package_text(one, gpus, verbose=verbose, driver=driver) for one in report.packages)
    parts = [part for part in [*parts, machine_text(report, verbose=verbose)] if part]
    text = f"\n{_LINE}\n".join(parts)
    return text if verbose else f"{text}\n{_MORE}"


_MORE = "more       --verbose shows libraries, compilers, toolkits, the cache, variables"


def verdict_text(verdict: Verdict) -> str:
    """The first cause and its fix, then the other findings; each fix stands once."""
    lines = row("fine", verdict.says) if verdict.ok else []
    facts: dict[str, list[str]] = {}
    for finding in verdict.findings:
        facts.setdefault(finding.fix, []).append(finding.fact)
    for fix, alike in facts.items():
        for fact in alike:
            lines += row("also", fact) if lines else row("wrong", verdict.says)
        if fix:
            lines += unwrapped_row("to fix it", fix)
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
        "labels": _plain(info.labels) if info else {},
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
