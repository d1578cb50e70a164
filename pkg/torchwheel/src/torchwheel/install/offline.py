"""`torchwheel install --bundle` and `--from`: an installation that another machine has prepared."""

import argparse
import dataclasses
import tempfile
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchwheel.evidence.files import ATTESTATION
from torchwheel.install.bundle import (
    TESTS,
    Bundle,
    BundledWheel,
    BundleFetch,
    machine_of,
    read_bundle,
    write_bundle,
)
from torchwheel.install.environment import TargetEnvironment, find_environment
from torchwheel.install.installer import (
    changes_nothing,
    choose_wheel,
    find_installer,
    install_verified,
    resolve_others,
    say_signatures,
    trust_of,
)
from torchwheel.install.page import OfferedWheel, wheel_of_file
from torchwheel.install.plan import Download, plan
from torchwheel.smoke import probe_source
from torchwheel.smoke.results import record_from_files
from torchwheel.smoke.smoke_record import SmokeRecord, record_text
from torchwheel.smoke.testing import arguments_of_tests, digest_of_tests, run_python
from torchwheel.smoke.trial_environment import Environment, clean_variables
from torchwheel_runtime.console import Progress, Terminal
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import Answer, Fetcher, link
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.text import escape, shorten_line

PYTEST = "pytest"


class RecordingFetch(Fetcher):
    """Fetches, and keeps each page by its address: attestations go into a bundle as they came."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}

    def page(self, url: str, accept: str) -> Answer | None:
        """A page; None if there is none."""
        answer = super().page(url, accept)
        if answer:
            self.pages[url] = answer
        return answer

    def evidence_of(self, wheel: OfferedWheel) -> bytes | None:
        """The page that attests a wheel, if the index has one."""
        answer = self.pages.get(wheel.provenance or link(wheel.url, ATTESTATION))
        return answer.body if answer else None


def make_bundle(options: argparse.Namespace) -> int:
    """Write what an installation here would bring into a folder; exit status 0."""
    if not options.name:
        raise UsageError("--bundle: expected projects, found none; name them")
    if options.tests and not options.tests.is_dir():
        raise UsageError(f"{options.tests}: expected a folder of smoke tests, found none")
    environment, fetch = find_environment(options.python), RecordingFetch()
    target, trust = environment, trust_of(options)
    downloads: list[Download] = []
    others: dict[str, Requirement] = {}
    projects = []
    with Terminal().live_line() as live:
        for name in options.name:
            ranking = choose_wheel(options, options.index, name, target, fetch)
            if changes_nothing(options):
                continue
            first = ranking.accepted[0]
            live.step(f"download {first.candidate.file}")
            deps = not options.no_deps
            made = plan(options.index, first, target, fetch, trust, dependencies=deps)
            say_signatures(made.downloads, live)
            downloads += made.downloads
            others |= {str(one): one for one in made.others}
            projects.append(f"{ranking.project}=={first.candidate.version}")
            target = with_downloads(target, made.downloads)
        if changes_nothing(options):
            return 0
        if options.tests and PYTEST not in target.versions:
            others[PYTEST] = Requirement(PYTEST)
            projects.append(PYTEST)
        once = {one.path.name: one for one in downloads}
        own = [
            BundledWheel(one.wheel, one.path, one.metadata.claims, fetch.evidence_of(one.wheel))
            for one in once.values()
        ]
        chosen = _versions(downloads)
        more = _download_others(tuple(others.values()), environment, chosen, fetch, live)
        machine = machine_of(environment)
        digest = write_bundle(options.bundle, machine, projects, own, more, options.tests)
    print(
        f"{options.bundle}: {len(own) + len(more)} wheels for {machine.text('any GPU')}\n"
        f"There: torchwheel install --from {options.bundle.name} --sha256 {digest}"
    )
    return 0


def with_downloads(
    environment: TargetEnvironment, downloads: Sequence[Download]
) -> TargetEnvironment:
    """The environment as it will be when these are installed."""
    own = _versions(downloads)
    names = set(map(canonicalize_name, own))
    kept = {
        name: version
        for name, version in environment.installed.items()
        if canonicalize_name(name) not in names
    }
    return dataclasses.replace(environment, installed={**kept, **own})


def _versions(downloads: Sequence[Download]) -> dict[str, str]:
    return {one.path.name.partition("-")[0]: str(one.wheel.version) for one in downloads}


def _download_others(
    requirements: Sequence[Requirement],
    environment: TargetEnvironment,
    chosen: Mapping[str, str],
    fetch: Fetcher,
    progress: Progress,
) -> list[BundledWheel]:
    """The wheels that pip would install for requirements that the index does not offer.

    Those that the index offers are `chosen` already: the version of each by its name.
    """
    if not requirements:
        return []
    program = find_installer(environment, "pip")
    progress.step(f"pip: {' '.join(map(str, requirements))}")
    folder = Path(tempfile.mkdtemp(prefix="others-", dir=private_folder()))
    found = []
    for file in resolve_others(program, requirements, environment, folder, chosen):
        path = folder / urllib.parse.unquote(urllib.parse.urlsplit(file.url).path).split("/")[-1]
        progress.step(f"download {path.name}")
        fetch.file(file.url, path, file.sha256, None)
        found.append(BundledWheel(wheel_of_file(path), path))
    return found


def install_bundle(options: argparse.Namespace) -> int:
    """Verify a bundle, install what it has, and try it. Exit status: 0 if all of it holds.

    Nothing is asked of a network, and nothing of the folder runs before each of its files has the
    hash of the manifest.
    """
    if options.name or options.index or options.tests or options.no_deps:
        raise UsageError(
            "--from: expected no name, --index, --tests or --no-deps; a bundle has all"
        )
    bundle = read_bundle(options.source, options.sha256)
    environment = find_environment(options.python)
    manifest, here = bundle.manifest, machine_of(environment)
    if not manifest.machine.takes(here):
        expected, found = manifest.machine.text("any GPU"), here.text("no GPU")
        says = f"expected the machine that it is for ({shorten_line(expected)}), found another"
        says = f"{options.source}: {says} ({found}); make a bundle for this one"
        raise TorchwheelError(escape(says))
    fetch, target, planned = BundleFetch(bundle), environment, []
    # Of the others nobody has asked for a signature: the hash of the manifest stands for it.
    trust = trust_of(options, manifest.others if options.sha256 else ())
    with Terminal().live_line() as live:
        for project in manifest.projects:
            ranking = choose_wheel(options, bundle.index, project, target, fetch)
            made = plan(bundle.index, ranking.accepted[0], target, fetch, trust)
            if made.others:
                says = f"expected {made.others[0]} in it or installed, found neither"
                raise TorchwheelError(f"{options.source}: {says}; make the bundle again")
            say_signatures(made.downloads, live)
            planned.append(made.downloads)
            target = with_downloads(target, made.downloads)
        if changes_nothing(options):
            return 0
        program = find_installer(environment, options.installer)
        for downloads in planned:
            install_verified(program, downloads, environment, live)
        signed_alone = bool(options.repository) and not options.sha256
        if bundle.tests and signed_alone:
            live.say("tests: not run, as nobody signs them: name the manifest's hash by --sha256")
        record = _try(bundle, planned, environment, fetch, live, tests=not signed_alone)
    print(record_text(record), end="")
    return int(not record.ok)


def _try(
    bundle: Bundle,
    planned: Sequence[Sequence[Download]],
    environment: TargetEnvironment,
    fetch: BundleFetch,
    progress: Progress,
    *,
    tests: bool,
) -> SmokeRecord:
    """Import what was installed and run its smoke tests; the record says how that went."""
    wheels = [one for downloads in planned for one in downloads]
    asked = (one[0].path.name.partition("-")[0] for one in planned)
    names = [name for name in asked if name != PYTEST]
    folder = Path(tempfile.mkdtemp(prefix="try-", dir=private_folder()))
    cwd, facts, report = folder / "run", folder / "facts.json", folder / "junit.xml"
    cwd.mkdir()
    (cwd / "pytest.ini").write_text("[pytest]\n")
    arguments, sources = [], ""
    if bundle.tests and tests:
        fetch.copy_tests(cwd / TESTS)
        sources = digest_of_tests(cwd / TESTS)
        arguments = arguments_of_tests(report, TESTS, ())
    progress.step(f"importing {', '.join(names)}" + (", running tests" if sources else ""))
    env = Environment(environment.program, clean_variables(), cwd)
    command = ["-c", probe_source(), "--of", f"--facts={facts}", *arguments]
    done = run_python(env, [*command, *names], cwd)
    paths = [one.path for one in wheels]
    junit = report if sources else None
    return record_from_files(paths[0], paths[1:], facts, junit, sources, done.status)
