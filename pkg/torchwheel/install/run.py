"""`torchwheel install NAME[==V] --index URL`: choose, download, verify, install."""

import argparse

from torchwheel.install import installer, report
from torchwheel.install.attestation import Trust
from torchwheel.install.environment import TargetEnvironment, find_environment
from torchwheel.install.plan import InstallPlan, Ranking, choose, parse_wanted, plan
from torchwheel_runtime.console import Progress, Quiet, Terminal
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import Fetcher, check_address
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.text import escape


def run_install(options: argparse.Namespace) -> int:
    """Carry out the command. Exit status: 0 if a wheel fits and, unless asked not to, is there."""
    if options.workflow and not options.repository:
        raise UsageError("--workflow goes with --repository OWNER/NAME")
    wanted = parse_wanted(options.name)
    check_address(options.index)
    environment, fetch = find_environment(options.python), Fetcher()
    ranking = choose(options.index, wanted, environment, fetch)
    dry = options.dry_run or options.why
    if not options.json:
        print(report.ranking_text(ranking, environment, why=options.why), flush=True)
    done = None
    problem = None if ranking.accepted else report.none_fits(ranking)
    if problem is None and not environment.torch:
        problem = report.no_torch(ranking)
    if problem is None and not dry:
        with Terminal().live_line() as live:
            done = _install(options, ranking, environment, fetch, Quiet() if options.json else live)
    if options.json:
        print(report.ranking_json(ranking, environment, done))
    if problem:
        raise TorchwheelError(problem)
    return 0


def _install(
    options: argparse.Namespace,
    ranking: Ranking,
    environment: TargetEnvironment,
    fetch: Fetcher,
    progress: Progress,
) -> InstallPlan:
    program = installer.find_installer(environment, options.installer)
    progress.step(f"download {ranking.accepted[0].candidate.file}")
    made = plan(
        options.index,
        ranking.accepted[0],
        environment,
        fetch,
        Trust(options.repository, options.trusted_root, options.workflow, options.self_hosted),
        dependencies=not options.no_deps,
    )
    for download in made.downloads:
        state = "verified" if download.signature.verified else "not signed"
        progress.say(f"{download.path.name}: {state}: {escape(download.signature.says)}")
    # What may fail comes first, so that nothing is installed that lacks a requirement.
    if made.others:
        progress.step(f"{program.name} install {' '.join(map(str, made.others))}")
        installer.install_others(program, made.others, environment, private_folder())
    progress.step(f"{program.name} install {ranking.accepted[0].candidate.file}")
    wheels = [(download.wheel.candidate, download.path) for download in made.downloads]
    installer.install_files(program, wheels, private_folder())
    progress.say(f"installed by {program.name}: {', '.join(w.file for w, _ in wheels)}")
    return made
