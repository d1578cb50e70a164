"""Plans an installation: the wheel of each project that the index offers, and what is left to pip.

A project that the index offers is taken from there alone, and so is a bundled package that it
should offer and does not. Its name may be free elsewhere, and whoever registers it would be
installed.
"""

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from torchwheel.findings import CheckResult
from torchwheel.index.groups import accepts
from torchwheel.index.needs import WheelNeeds, needs_of_claims
from torchwheel.inspect.wheel import RUNTIME
from torchwheel.install.attestation import Trust, verify_signature
from torchwheel.install.choose import Judgement, best, judge
from torchwheel.install.downloaded import (
    TORCH,
    WheelMetadata,
    needs_of_libraries,
    parse_metadata,
    read_metadata,
)
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel, find_page, wheel_of_file
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import Fetch
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import has_long_number

_MOST_METADATA = 50
"""METADATA files of one project that are read before one wheel is taken."""
_MOST_PROJECTS = 50


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The judgements on a project's wheels.

    Attributes:
        project: its normalised name.
        url: the page that was read.
        judgements: one of each wheel, in the order of the page.
        accepted: those of the wheels that fit, the best first.
    """

    project: NormalizedName
    url: str
    judgements: tuple[Judgement, ...]
    accepted: tuple[Judgement, ...]

    @property
    def rejected(self) -> tuple[Judgement, ...]:
        """The wheels that do not fit."""
        return tuple(one for one in self.judgements if one.reasons)


def parse_wanted(text: str) -> Requirement:
    """What the user asks for: NAME, or NAME==V and the like."""
    try:
        wanted = None if has_long_number(text) else Requirement(text)
    except ValueError:
        wanted = None
    if wanted is None or wanted.url or wanted.marker or wanted.extras:
        raise UsageError(f'expected e.g. "demo" or "demo==1.0.0", found {quote(text)}')
    if canonicalize_name(wanted.name) == TORCH:
        raise UsageError("torch: expected an extension; torch itself is for pip or uv to install")
    return wanted


def choose(
    index: str, wanted: Requirement, environment: TargetEnvironment, fetch: Fetch
) -> Ranking:
    """Judge every wheel of a project.

    Raises:
        TorchwheelError: the index has no such project, or its page cannot be read.
    """
    ranking = _ranking(index, wanted, environment, fetch)
    if ranking is None:
        project = canonicalize_name(wanted.name)
        raise TorchwheelError(f"{index}: expected the project {project}, found none; check --index")
    return ranking


def choose_file(path: Path, environment: TargetEnvironment) -> Ranking:
    """Judge a wheel's file, by its claims or by its METADATA.

    Raises:
        UsageError: it is no wheel of an extension.
    """
    if not path.is_file():
        raise UsageError(f"{path}: expected a wheel's file, found none")
    candidate = wheel_of_file(path)
    project = canonicalize_name(path.name.partition("-")[0])
    wanted = parse_wanted(f"{project}=={candidate.version}")
    metadata = read_metadata(path, candidate)
    if metadata.claims:
        needs = needs_of_claims(metadata.claims)
        candidate = dataclasses.replace(candidate, needs=needs, described=True)
    else:
        found = metadata.torch_range(environment.markers)
        needs = _with_range(candidate.needs, candidate, found)
    judgement = judge(candidate, environment, wanted.specifier, needs)
    accepted = best([judgement], environment)
    return Ranking(project, candidate.url, (judgement,), tuple(accepted))


def _ranking(
    index: str, wanted: Requirement, environment: TargetEnvironment, fetch: Fetch
) -> Ranking | None:
    project = canonicalize_name(wanted.name)
    page = find_page(index, project, fetch)
    if page is None:
        return None
    url, wheels = page
    specifier = wanted.specifier
    if not specifier.prereleases and all(one.version.is_prerelease for one in wheels):
        specifier = SpecifierSet(str(specifier), prereleases=True)
    judged = {one: judge(one, environment, specifier) for one in wheels}
    for judgement in _with_metadata(judged, environment, specifier, fetch):
        judged[judgement.candidate] = judgement
    accepted = best(judged.values(), environment)
    return Ranking(project, url, tuple(judged.values()), tuple(accepted))


def _with_metadata(
    judged: Mapping[OfferedWheel, Judgement],
    environment: TargetEnvironment,
    wanted: SpecifierSet,
    fetch: Fetch,
) -> Iterator[Judgement]:
    """Judge anew by METADATA the wheels that only their names describe, until one fits.

    The best come first, and before them those whose names nobody can read.
    """
    unread = [one for one in judged.values() if one.candidate.said.unread]
    for first in [*unread, *best(judged.values(), environment)][:_MOST_METADATA]:
        candidate = first.candidate
        if candidate.described or candidate.metadata is None:
            continue
        url, digest = candidate.metadata
        answer = fetch.page(url, "*/*")
        if answer is None:
            continue
        if digest is not None and hashlib.sha256(answer.body).hexdigest() != digest:
            raise TorchwheelError(f"{url}: expected sha256 {digest}, as the index says")
        found = parse_metadata(answer.body, candidate, url).torch_range(environment.markers)
        needs = _with_range(first.needs, candidate, found)
        judgement = judge(candidate, environment, wanted, needs)
        yield judgement
        if not judgement.reasons:
            return


def _with_range(needs: WheelNeeds, candidate: OfferedWheel, found: str | None) -> WheelNeeds:
    """The needs of a name and a range of torch in METADATA, which is right where they differ.

    A range of several minors does not say which one a name means that nobody can read.
    """
    if not found:
        return needs
    both = [",".join(dict.fromkeys((named, found))) for named in needs.torch] or [found]
    ranges = tuple(one for one in both if _minors(one)) or (found,)
    if candidate.said.unread and len(_minors(found)) > 1:
        return needs
    return dataclasses.replace(needs, torch=ranges)


def _minors(torch_range: str) -> list[str]:
    return [minor for minor in torch_releases() if accepts(torch_range, minor)]


@dataclasses.dataclass(frozen=True)
class Download:
    """A wheel that was downloaded and verified."""

    wheel: OfferedWheel
    path: Path
    metadata: WheelMetadata
    signature: CheckResult


@dataclasses.dataclass(frozen=True)
class InstallPlan:
    """What will be installed.

    Attributes:
        downloads: verified wheels of the index; the first is the one that was asked for.
        others: requirements that the index does not offer and that are not installed yet.
    """

    downloads: tuple[Download, ...]
    others: tuple[Requirement, ...] = ()


def plan(
    index: str | None,
    first: Judgement,
    environment: TargetEnvironment,
    fetch: Fetch,
    trust: Trust,
    *,
    dependencies: bool = True,
) -> InstallPlan:
    """Download and verify a wheel, and those of its requirements that the index offers.

    Args:
        index: the address of the index; None for a wheel's file, whose requirements come from
            where the installer is set up.
        first: the wheel that was chosen.
        environment: what is installed there is not installed again.
        fetch: where files come from.
        trust: whose wheels are believed.
        dependencies: whether requirements are looked at.
    """
    folder = Path(tempfile.mkdtemp(prefix="wheels-", dir=private_folder()))
    version = first.candidate.version
    downloads = [_download(first, environment, folder, fetch, trust, version)]
    others: dict[str, Requirement] = {}
    known = environment.versions
    chosen = {canonicalize_name(first.candidate.file.partition("-")[0]): str(version)}
    # It grows while it is read: a requirement that the index offers has requirements, too.
    for asking in downloads if dependencies else ():
        for requirement in asking.metadata.needed(environment.markers):
            name = canonicalize_name(requirement.name)
            if name == TORCH or is_met(requirement, chosen.get(name, known.get(name))):
                continue
            requirement.marker = None
            found = _find_offer(index, requirement, environment, fetch)
            if found is None and name in (RUNTIME, *asking.wheel.bundled):
                if index is None:
                    says = f"expected the index that the bundled package {name} is from, found none"
                    raise UsageError(f"{asking.path.name}: {says}; name it with --index")
                says = f"expected the bundled package {name} of {asking.path.name}, found none"
                raise TorchwheelError(f"{index}: {says}; report it to the authors of the index")
            if found is None:
                others[str(requirement)] = requirement
                continue
            if len(downloads) == _MOST_PROJECTS or name in chosen:
                says = f"expected one {name} for all, found that {requirement} asks for another"
                raise TorchwheelError(f"{index}: {says}")
            downloads.append(_download(found, environment, folder, fetch, trust))
            chosen[name] = str(found.candidate.version)
    return InstallPlan(tuple(downloads), tuple(others.values()))


def is_met(requirement: Requirement, version: str | None) -> bool:
    """Whether an installed version is what a requirement asks for; None is not installed."""
    try:
        return version is not None and requirement.specifier.contains(
            Version(version), prereleases=True
        )
    except InvalidVersion:
        return False


def _find_offer(
    index: str | None, requirement: Requirement, environment: TargetEnvironment, fetch: Fetch
) -> Judgement | None:
    """The best wheel of a requirement, if the index offers the project at all."""
    if index is None or requirement.url:
        return None
    ranking = _ranking(index, requirement, environment, fetch)
    if ranking is None:
        return None
    if not ranking.accepted:
        raise TorchwheelError(f"{ranking.url}: expected a wheel for {requirement}, found none here")
    return ranking.accepted[0]


def _download(
    accepted: Judgement,
    environment: TargetEnvironment,
    folder: Path,
    fetch: Fetch,
    trust: Trust,
    version: Version | None = None,
) -> Download:
    """Download a wheel; verify its hash, its maker, and that it is what the index says."""
    candidate = accepted.candidate
    path = folder / candidate.file
    fetch.file(candidate.url, path, candidate.sha256 or "", candidate.size)
    signature = verify_signature(path, candidate, fetch, private_folder(), trust, version)
    metadata = read_metadata(path, candidate)
    claims = metadata.claims
    if candidate.described and claims is not None and needs_of_claims(claims) != candidate.needs:
        says = "expected claims as the index says, found others"
        raise TorchwheelError(f"{candidate.file}: {says}; report it to the authors of the index")
    needs = needs_of_claims(claims) if claims else accepted.needs
    required = metadata.torch_range(environment.markers)
    if not claims:
        needs = _with_range(candidate.needs, candidate, required)
    named = SpecifierSet(f"=={candidate.version}")
    reasons = judge(candidate, environment, named, needs).reasons
    if not reasons and claims is None:
        per_library = [
            (*judge(candidate, environment, named, own).reasons, *missing)
            for own, missing in needs_of_libraries(path, environment)
        ]
        # One library that can be loaded is enough.
        reasons = min(per_library, key=len, default=())
    if reasons:
        says = reasons[0].line
        raise TorchwheelError(f"{candidate.file}: {says}; nothing was installed")
    return Download(candidate, path, metadata, signature)
