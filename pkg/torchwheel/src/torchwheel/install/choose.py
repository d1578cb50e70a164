"""Chooses a wheel: each one is judged for an environment, and the best of those that fit is taken.

Pure functions. The rules are those that hold when a library is loaded: those of
`torchwheel_runtime.validate`.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchwheel.findings import finding_of_wheel
from torchwheel.index.needs import WheelNeeds
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel
from torchwheel_runtime.arch.model import backend_of, runtime_major
from torchwheel_runtime.arch.runs import machine_code_runs_on, runs_on
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.text import join_names
from torchwheel_runtime.validate.at_load import check_code, check_driver, tag_floor
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import (
    check_backend,
    check_built_with,
    describe_torch,
    range_contains,
)
from torchwheel_runtime.variant_format import index_file_name
from torchwheel_runtime.versions import minor_version, version_numbers


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A wheel, held against an environment.

    Attributes:
        candidate: the wheel.
        needs: its needs, with what its metadata adds.
        findings: an error keeps it from its use; with a warning it is of less use here.
    """

    candidate: OfferedWheel
    needs: WheelNeeds
    findings: tuple[Finding, ...] = ()

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """Why it does not fit; empty if it fits."""
        return tuple(one for one in self.findings if one.level == "error")

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is of less use here, e.g. a GPU without code."""
        return tuple(one for one in self.findings if one.level == "warning")


def _misfit(rule: str, expected: str, found: str) -> Finding:
    """What a wheel is for, and what is here."""
    return finding_of_wheel(rule, found, expected=expected)


def judge(
    candidate: OfferedWheel,
    environment: TargetEnvironment,
    wanted: SpecifierSet,
    needs: WheelNeeds | None = None,
) -> Judgement:
    """Whether a wheel fits an environment.

    Args:
        candidate: the wheel.
        environment: without a torch, all else decides.
        wanted: the versions that are asked for.
        needs: the wheel's needs, if more is known than the candidate says.
    """
    needs = needs or candidate.needs
    per_library = [_library_findings(library, environment) for library in needs.libraries()]
    # One library that fits is enough. A wheel for every torch runs without any.
    of_library = min(per_library, key=_severity)
    of_label = _label_findings(candidate, fits=not of_library)
    if needs.abi == "universal":
        of_library = [dataclasses.replace(one, level="warning") for one in of_library]
    findings = [
        *_offer_findings(candidate, wanted),
        *of_label,
        *_name_findings(candidate, needs, environment),
        *_python_findings(candidate, environment),
        *_torch_findings(needs, environment),
        *of_library,
    ]
    if _lacks_gpu_code(needs, environment):
        findings.append(finding_of_wheel("", "it has no GPU code", "warning"))
    return Judgement(candidate, needs, tuple(findings))


def _offer_findings(candidate: OfferedWheel, wanted: SpecifierSet) -> Iterable[Finding]:
    version = candidate.version
    if not wanted.contains(version, prereleases=True):
        yield _misfit("version", f"{wanted}", str(version))
    elif version.is_prerelease and not (wanted.prereleases or _is_named(version, wanted)):
        yield _misfit("version", "a final release", f"{version}, which must be named")
    if candidate.sha256 is None:
        yield _misfit("hash", "a sha256 in the index", "none, so its bytes cannot be verified")
    if candidate.withdrawn is not None and not _is_named(version, wanted):
        yield _misfit("withdrawn", "a wheel that is offered", f"withdrawn: {candidate.withdrawn}")


def _label_findings(candidate: OfferedWheel, *, fits: bool) -> Iterable[Finding]:
    if candidate.label:
        machine = "fits this machine" if fits else "is for other machines"
        takes = "uv alone takes such a wheel"
        if candidate.label_file is None:
            takes = f"no installer takes it, as the index has no {index_file_name(candidate.file)}"
        found = f"the label {candidate.label}, which {machine}; {takes}"
        yield _misfit("label", "a wheel that pip takes", found)


def _is_named(version: Version, wanted: SpecifierSet) -> bool:
    """Whether a version is named in full: "==1.0.0+cu130"."""
    return any(one.operator in ("==", "===") and one.version == str(version) for one in wanted)


def _python_findings(candidate: OfferedWheel, environment: TargetEnvironment) -> Iterable[Finding]:
    own = environment.implementation
    here = f"{own} {environment.python}"
    python = candidate.requires_python
    if python is not None and not python.contains(environment.python, prereleases=True):
        yield _misfit("python", f"Python {python}", here)
        return
    names = sorted(map(str, candidate.tags))
    if not set(names).isdisjoint(environment.tags):
        return
    known = {tag.rpartition("-")[0] for tag in environment.tags}
    pairs = {f"{tag.interpreter}-{tag.abi}" for tag in candidate.tags}
    if known.isdisjoint(pairs):
        yield _misfit("python", join_names(sorted(pairs)), here)
        return
    platforms = sorted(tag.platform for tag in candidate.tags)
    floor, glibc = tag_floor(platforms), environment.glibc
    machine = environment.platform.partition("_")[2]
    if floor and any(name.endswith(machine) for name in platforms):
        found = f"glibc {glibc}" if glibc else "a C library that is not glibc"
        yield _misfit("glibc", f"glibc {floor} or later", found)
    else:
        yield _misfit("platform", join_names(platforms), environment.platform)


def _torch_findings(needs: WheelNeeds, environment: TargetEnvironment) -> Iterable[Finding]:
    torch = environment.torch
    if torch is None:
        return
    if needs.torch and not any(range_contains(one, torch.version) for one in needs.torch):
        ranges = " or ".join(f"torch{one}" for one in needs.torch)
        yield _misfit("torch", ranges, f"torch {torch.version}")
    if needs.old_abi is not None and needs.old_abi != torch.old_abi:
        yield _misfit("strings", f"a torch with {_strings(needs.old_abi)}", _strings(torch.old_abi))
    if needs.for_cpu and (torch.backend or torch.other):
        yield _misfit("backend", "a torch for CPUs only", describe_torch(torch))


def _name_findings(
    candidate: OfferedWheel, needs: WheelNeeds, environment: TargetEnvironment
) -> Iterable[Finding]:
    """What the name says that is in no needs: a torch nobody can read, a backend nobody knows."""
    torch, said = environment.torch, candidate.said
    if candidate.described or torch is None:
        return
    if said.unread and not needs.torch:
        yield _misfit("torch", "a wheel that says which torch it is for", f"+{said.unread}")
    if said.other and said.other != torch.other:
        yield _misfit("backend", f"a torch built for {said.other.upper()}", describe_torch(torch))


def _lacks_gpu_code(needs: WheelNeeds, environment: TargetEnvironment) -> bool:
    """Whether a native wheel is known to have no code for the GPUs that torch is for."""
    torch = environment.torch
    return needs.abi in ("aten", "stable") and not needs.kernels and bool(torch and torch.backend)


def _strings(old: bool) -> str:
    return "the strings of before GCC 5" if old else "the strings of GCC 5 and later"


def _severity(findings: Sequence[Finding]) -> tuple[int, int]:
    return sum(one.level == "error" for one in findings), len(findings)


def _library_findings(needs: LibraryNeeds, environment: TargetEnvironment) -> list[Finding]:
    """What keeps a library from its use here, then what makes it of less use."""
    torch, driver, gpus = environment.torch, environment.driver, environment.gpus
    findings = []
    if torch is not None:
        findings += [check_backend(needs, torch, "it"), check_built_with(needs, torch, "it")]
    elif needs.backend and gpus and backend_of(gpus[0].arch) != needs.backend:
        return [_misfit("backend", f"a GPU for {needs.backend}", gpus[0].name)]
    if needs.backend and needs.toolkit_version:
        findings.append(check_driver(needs.backend, needs.toolkit_version, driver))
        if needs.archs:
            findings += check_code(needs, needs.toolkit_version, gpus, driver, "{}")
    found = [
        finding_of_wheel(one.rule, one.found, one.level, expected=one.expected)
        for one in findings
        if one is not None
    ]
    return sorted(found, key=lambda one: one.level)


def best(judgements: Iterable[Judgement], environment: TargetEnvironment) -> list[Judgement]:
    """The wheels that fit, the best first: the newest release, then the closest fit."""
    order = {tag: at for at, tag in reversed(list(enumerate(environment.tags)))}
    accepted = [one for one in judgements if not one.reasons]
    # Names decide last, so that equal indexes give equal answers.
    accepted.sort(key=lambda one: one.candidate.file)
    accepted.sort(key=lambda one: _rank(one, environment, order), reverse=True)
    return accepted


def _rank(
    accepted: Judgement, environment: TargetEnvironment, order: dict[str, int]
) -> tuple[object, ...]:
    candidate, needs = accepted.candidate, accepted.needs
    tag = min((order.get(str(tag), len(order)) for tag in candidate.tags), default=len(order))
    return (
        Version(candidate.version.public),
        _backend_fit(needs, environment),
        max((_code_fit(library, environment) for library in needs.libraries()), default=0),
        _newest_torch(needs) if environment.torch is None else (),
        max((_toolkit_fit(library, environment) for library in needs.libraries()), default=(0,)),
        ("pure", "universal", None, "stable", "aten").index(needs.abi),
        -tag,
        candidate.build,
        candidate.version,
    )


def _backend_fit(needs: WheelNeeds, environment: TargetEnvironment) -> int:
    """Kernels for the GPUs that torch is for; without such a torch, no idle kernels."""
    torch, gpus = environment.torch, environment.gpus
    backend = torch.backend if torch else backend_of(gpus[0].arch) if gpus else None
    if backend is not None:
        return int(any(kernels.backend == backend for kernels in needs.kernels))
    if needs.abi in ("pure", "universal"):
        return 2 if needs.abi == "universal" else 1
    return 0 if needs.kernels else 3


def _code_fit(needs: LibraryNeeds, environment: TargetEnvironment) -> int:
    """3: machine code for every GPU here; 2: PTX for some; 1: not known; 0: none."""
    gpus = [gpu for gpu in environment.gpus if backend_of(gpu.arch) == needs.backend]
    if not gpus or not needs.archs:
        return 1
    if all(any(machine_code_runs_on(arch, gpu.arch) for arch in needs.archs) for gpu in gpus):
        return 3
    return 2 if all(any(runs_on(arch, gpu.arch) for arch in needs.archs) for gpu in gpus) else 0


def _toolkit_fit(needs: LibraryNeeds, environment: TargetEnvironment) -> tuple[int, ...]:
    """The release of torch's toolkit is the closest; without torch, the newest one."""
    torch, release = environment.torch, needs.toolkit_version or ""
    if torch is None:
        return version_numbers(release) or (0,)
    built = torch.built_with(needs.backend) or ""
    if not release or not built:
        return (0,)
    same = minor_version(release) == minor_version(built)
    one = needs.backend is not None and (
        runtime_major(needs.backend, release) == runtime_major(needs.backend, built)
    )
    return (2 if same else int(one),)


def _newest_torch(needs: WheelNeeds) -> tuple[int, ...]:
    """The newest floor of its ranges of torch."""
    floors = (version_numbers(one.lstrip("=<>~!")) for one in needs.torch)
    return max(floors, default=())


def torch_to_install(accepted: Sequence[Judgement]) -> tuple[str, str | None] | None:
    """The torch to install where there is none: its range and its toolkit.

    It is the one that the best wheel needs; if the release has a wheel for every torch, any from
    its oldest on. None if it is not known that it needs one.
    """
    if not accepted or not accepted[0].needs.torch:
        return None
    release = accepted[0].candidate.version.public
    wide = [
        version_numbers(text.lstrip("=<>~!"))
        for one in accepted
        if one.needs.abi in ("pure", "universal") and one.candidate.version.public == release
        for text in one.needs.torch
    ]
    if wide:
        return f">={'.'.join(map(str, min(wide)))}", None
    needs = accepted[0].needs
    newest = max(needs.torch, key=lambda one: version_numbers(one.lstrip("=<>~!")))
    if needs.abi == "stable":
        return newest, None
    for kernels in needs.kernels:
        numbers = version_numbers(kernels.release)
        prefix = "cu" if kernels.backend == "cuda" else "rocm"
        joined = ("" if prefix == "cu" else ".").join(map(str, numbers[:2]))
        return newest, f"{prefix}{joined}" if len(numbers) > 1 else None
    return newest, "cpu" if needs.for_cpu else None
