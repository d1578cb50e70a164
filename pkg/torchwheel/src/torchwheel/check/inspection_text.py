"""What `torchwheel inspect` prints: 80 columns for a person, JSON for a program."""

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from torchwheel.check.label import properties_text
from torchwheel.check.named_claims import NamedCase, TorchFit
from torchwheel.data import read
from torchwheel.findings import finding_json
from torchwheel.inspect.installed import PROGRAMS
from torchwheel.inspect.library_facts import GpuRuntime, GpuTarget, LibraryFacts
from torchwheel.inspect.sbom import FOLDER, materials_text
from torchwheel_runtime.arch.model import BRANDS
from torchwheel_runtime.text import escape, hanging_lines, join_names, shorten_line, size_text
from torchwheel_runtime.validate.findings import Finding

SCHEMA = 1
_KINDS = {"sass": "SASS", "hsaco": "AMD", "ptx": "PTX"}


def inspection_text(case: NamedCase, findings: Sequence[Finding]) -> str:
    """The report; every line is printable."""
    return "".join(f"{escape(line)}\n" for line in _lines(case, findings))


def _row(name: str, text: str) -> list[str]:
    return hanging_lines(f"{name:<11}", shorten_line(text)) if text else []


def _lines(case: NamedCase, findings: Sequence[Finding]) -> Iterator[str]:
    facts, claims = case.facts, case.claims
    yield facts.title
    yield from _row("size", _sizes(case))
    tags = "-".join(".".join(p) for p in (claims.interpreters, claims.abis, claims.platforms) if p)
    yield from _row("claims", join_names(filter(None, (tags, *_claim_texts(case)))))
    for label, properties in (facts.labels or {}).items():
        yield from _row("label", f"{label}: {properties_text(properties)}")
    yield from _row("SBOM", "; ".join(_sbom_texts(case)))
    for name, says, places in (
        ("installs", "", facts.names),
        ("at start", "runs whenever Python starts: ", facts.at_start),
        ("outside", "is installed outside the packages: ", facts.outside),
    ):
        yield from _row(name, f"{says}{join_names(places)}" if places else "")
    for group, entries in facts.entry_points.items():
        texts = join_names(f"{name} = {target}" for name, target in entries.items())
        yield from _row("programs" if group in PROGRAMS else "plug-ins", f"{group}: {texts}")
    for library in facts.libraries:
        yield from _row("library", f"{library.name}, {size_text(library.size)}")
        for name, text in _library_rows(case, library):
            yield from _row(f"  {name}", text)
    yield "-" * 80
    for finding in findings:
        name = "not true" if finding.level == "error" else "note"
        yield from _row(name, f"{finding} [{finding.rule}]")
    if not findings:
        yield from _row("true", "nothing that it claims is contradicted by what is in it")


def _sizes(case: NamedCase) -> str:
    facts = case.facts
    unpacked = f", {size_text(facts.unpacked)} unpacked" if facts.kind == "wheel" else ""
    text = f"{size_text(facts.size)}{unpacked}, {_count(len(facts.members), 'file')}"
    text += f", {_count(len(facts.libraries), 'library', 'libraries')}"
    if facts.grafted:
        size = size_text(sum(library.size for library in facts.grafted))
        text += f", of which {len(facts.grafted)} in .libs ({size})"
    return text


def _sbom_texts(case: NamedCase) -> Iterator[str]:
    """The files with SBOMs, and what torchwheel's own says that the libraries were made with."""
    facts = case.facts
    paths = map(PurePosixPath, facts.members)
    names = [path.name for path in paths if path.match(f"*.dist-info/{FOLDER}/*")]
    if names:
        yield join_names(names)
    if facts.sbom:
        yield materials_text(facts.sbom.materials) or "made with nothing but its own sources"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def _claim_texts(case: NamedCase) -> Iterator[str]:
    claims = case.claims
    if claims.torch is not None:
        yield f"torch{claims.torch}"
    if claims.local.torch:
        yield f"built for torch {claims.local.torch}"
    yield from (f"CUDA {claims.cuda}",) if claims.cuda else ()
    yield from (f"ROCm {claims.local.rocm}",) if claims.local.rocm else ()
    yield from ("for CPUs",) if claims.local.cpu else ()
    if claims.local.new_strings is not None:
        yield f"{'new' if claims.local.new_strings else 'old'} std::string"


def _library_rows(case: NamedCase, library: LibraryFacts) -> Iterator[tuple[str, str]]:
    if library.problem:
        yield "not read", library.problem
        return
    yield "GPU code", _gpu_code(library)
    yield "runtime", join_names(map(_runtime, library.runtimes))
    if fit := case.torch.get(library.name):
        yield "torch", _torch(fit)
    if library.python:
        yield "Python", f"{_count(len(library.python), 'symbol')} of CPython"
    yield "system", join_names(f"{k} {v}" for k, v in library.versions.items())
    yield "run path", " ".join(path or "(empty)" for path in library.run_paths)
    system = read("runtime.json")["system"]["needed"]
    yield "needs", join_names(name for name in library.needed if name not in system)


def _gpu_code(library: LibraryFacts) -> str:
    if library.targets_problem:
        return f"not read: {library.targets_problem}"
    kinds: dict[str, list[GpuTarget]] = {}
    for target in library.targets:
        kinds.setdefault(target.kind, []).append(target)
    texts = []
    for kind, targets in kinds.items():
        names = " ".join(
            str(t.arch) if t.is_code or kind == "ptx" else f"({t.arch})" for t in targets
        )
        texts.append(f"{_KINDS[kind]} {names}{_counts_text(targets)}")
    return "; ".join(texts)


def _counts_text(targets: Sequence[GpuTarget]) -> str:
    targets = [target for target in targets if target.kernels != 0]
    counts = [target.kernels for target in targets if target.kernels is not None]
    packings = sorted({packing for target in targets for packing in target.packings} - {"none"})
    notes = []
    if counts and len(counts) == len(targets):
        least, most = min(counts), max(counts)
        notes.append(
            f"{_count(most, 'kernel') if least == most else f'{least} to {most} kernels'} each"
        )
    if packings and packings != ["bundle"]:
        notes.append(f"packed: {join_names(packings)}")
    return f" ({', '.join(notes)})" if notes else ""


def _runtime(runtime: GpuRuntime) -> str:
    name = f"{BRANDS[runtime.backend]}'s"
    if runtime.how == "static":
        return f"{name}, linked in"
    return f"{name}, {runtime.how}: {runtime.library}"


def _torch(fit: TorchFit) -> str:
    text = f"{_count(fit.shims, 'C symbol')}, {_count(fit.others, 'other')}"
    if fit.strings:
        text += f", {fit.strings} std::string"
    if fit.unknown:
        text += f", {len(fit.unknown)} unknown"
    return f"{text}; all in {_releases(fit)}"


def _releases(fit: TorchFit) -> str:
    return f"torch {' '.join(fit.releases)}" if fit.releases else "no torch of the table"


def inspection_json(case: NamedCase, findings: Sequence[Finding]) -> str:
    """The report for programs: byte-stable for equal facts."""
    facts, claims = case.facts, case.claims
    content = {
        "schema": SCHEMA,
        "title": facts.title,
        "kind": facts.kind,
        "size": facts.size,
        "unpacked": facts.unpacked,
        "files": len(facts.members),
        "claims": {
            "interpreters": claims.interpreters,
            "abis": claims.abis,
            "platforms": claims.platforms,
            "torch": None if claims.torch is None else str(claims.torch),
            "torch_minor": claims.local.torch,
            "cuda": claims.cuda,
            "rocm": claims.local.rocm,
            "cpu": claims.local.cpu,
            "new_strings": claims.local.new_strings,
        },
        "installs": {
            "names": facts.names,
            "at_start": facts.at_start,
            "outside": facts.outside,
            "entry_points": facts.entry_points,
        },
        "labels": facts.labels,
        "torch_releases_known": case.table.releases,
        "libraries": [_library_json(case, library) for library in facts.libraries],
        "findings": list(map(finding_json, findings)),
    }
    return json.dumps(content, indent=1) + "\n"


def _library_json(case: NamedCase, library: LibraryFacts) -> dict[str, Any]:
    fit = case.torch.get(library.name)
    # The fields of the dataclasses have the names and the order of the JSON.
    return {
        "name": library.name,
        "size": library.size,
        "grafted": library in case.facts.grafted,
        "problem": library.problem,
        "machine": library.machine,
        "soname": library.soname,
        "gpu_code": [vars(target) | {"arch": str(target.arch)} for target in library.targets],
        "gpu_code_problem": library.targets_problem,
        "runtimes": list(map(vars, library.runtimes)),
        "torch": fit and vars(fit) | {"lacking": dict(fit.lacking)},
        "python_symbols": len(library.python),
        "versions": dict(library.versions),
        "run_paths": library.run_paths,
        "needed": library.needed,
    }
