"""Commands that prove finished wheels and publish them."""

import argparse
import atexit
import gc
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel.arguments import (
    GPU,
    LOCKED,
    MATRIX,
    command,
    group,
    option,
    port_number,
    positive_number,
)
from torchwheel.console import Terminal
from torchwheel.errors import TorchwheelError, UsageError

if TYPE_CHECKING:
    from torchwheel.evidence.files import BelievedReleases

TRUSTED_ROOT = option(
    "--trusted-root",
    help='file with the root of trust, or "latest" for the one that Sigstore has now (default: '
    "TORCHWHEEL_TRUSTED_ROOT, else the one of the installed sigstore)",
)


@command(
    "check",
    "Hold wheels against their claims: the gates.",
    option("wheel", type=Path, nargs="+"),
    option("--max-size", type=positive_number, help="limit in MiB (default: 64; auto: none)"),
    option(
        "--claims",
        choices=("file", "auto"),
        default="file",
        help="what a wheel is held to: its torchwheel.json, or what anybody's wheel says by its "
        "name and metadata (default: file)",
    ),
    option("--sarif", type=Path, metavar="FILE", help="write the findings as SARIF 2.1.0"),
    option(
        "--summary",
        type=Path,
        metavar="FILE",
        help="append them as Markdown ($GITHUB_STEP_SUMMARY)",
    ),
)
def check(options: argparse.Namespace) -> int:
    """Print the gates of each wheel."""
    from torchwheel.check.run import check_wheels

    return check_wheels(
        options.wheel,
        auto=options.claims == "auto",
        max_size_mib=options.max_size,
        sarif=options.sarif,
        summary=options.summary,
    )


@command(
    "inspect",
    "Say what is in anybody's wheel, package or library, and what it claims that is not true.",
    option("subject", nargs="+", help="a wheel, a library, or the name of an installed package"),
    option("--json", action="store_true", help="print a JSON object for each, one a line"),
)
def inspect(options: argparse.Namespace) -> int:
    """Print a report for each subject."""
    from torchwheel.check.inspection_text import inspection_json, inspection_text
    from torchwheel.check.named_gates import case_of, findings_of
    from torchwheel.inspect.inspection import inspect

    report = inspection_json if options.json else inspection_text
    refused: list[TorchwheelError] = []
    separator = ""
    for subject in options.subject:
        try:
            case = case_of(inspect(subject))
            text = report(case, findings_of(case))
        except TorchwheelError as error:
            refused.append(error)
            continue
        print(separator, text, sep="", end="")
        separator = "" if options.json else "\n"
    if len(refused) > 1:
        raise TorchwheelError("\n".join(map(str, refused)))
    if refused:
        raise refused[0]
    return 0


@command(
    "smoke",
    "Install a wheel in a clean environment and try it out.",
    MATRIX,
    option("wheel", type=Path),
    option("--here", action="store_true", help="use this Python's own torch; no network"),
    option("--tests", type=Path, help="folder of smoke tests (default: the matrix's)"),
    option("--torch", help="torch release of the environment (default: the matrix's)"),
    LOCKED,
    option("--record", type=Path, help="JSON record (default: dist/smoke/WHEEL.json)"),
    option("--junit", type=Path, help="JUnit file (default: beside the record)"),
)
def smoke(options: argparse.Namespace) -> int:
    """Run the smoke tests of a wheel and write their record."""
    from torchwheel.smoke.record import record_text
    from torchwheel.smoke.requirements import bundled_with
    from torchwheel.smoke.run import smoke
    from torchwheel.toolkit.cache import cache_folder

    tests, torch = options.tests, options.torch
    requires: tuple[str, ...] = ("pytest",)
    imports: tuple[str, ...] = ()
    without_gpu: tuple[str, ...] | None = ()
    locks: Path | None = None
    if tests is None:
        # With --tests the matrix is not read: an offline GPU machine has no YAML parser.
        from torchwheel.inspect.wheel import read_wheel
        from torchwheel.matrix.load import load
        from torchwheel.pipeline.project import locks_folder, project_folder, tests_folder
        from torchwheel.smoke.environment import default_torch

        matrix = load(options.matrix)
        section, root = matrix.smoke, options.matrix.resolve().parent
        source = project_folder(matrix, root, cache_folder(), Terminal())
        tests, requires = tests_folder(matrix, root, source), section.requires
        imports, without_gpu = matrix.own_build.imports, matrix.without_gpu
        locks = locks_folder(matrix, root) if options.locked else None
        torch = torch or (section.torch and default_torch(read_wheel(options.wheel), section.torch))
    file = options.record or Path("dist", "smoke", f"{options.wheel.name}.json")
    with Terminal().live_line() as progress:
        record = smoke(
            options.wheel,
            tests=tests,
            torch=torch,
            requires=requires,
            bundled=bundled_with(options.wheel),
            here=options.here,
            record=file,
            junit=options.junit or file.with_suffix(".xml"),
            cache=cache_folder(),
            progress=progress,
            without_gpu=without_gpu,
            imports=imports,
            locks=locks,
        )
    print(f"{record_text(record)}record: {file}")
    return int(not record.ok)


@command(
    "compat",
    "Try a wheel with every torch that it claims.",
    MATRIX,
    option("wheel", type=Path),
    option(
        "--torch", action="append", help="a release; may be repeated (default: those of the matrix)"
    ),
    option(
        "--python",
        action="append",
        help='a Python ("3.12" or a path); may be repeated: then each torch is tried with two of '
        "them that it was published for (default: this Python)",
    ),
    option(
        "--all-tests",
        action="store_true",
        help="run every test, not the files of smoke.without_gpu alone",
    ),
    option(
        "--keep",
        action="store_true",
        help="keep the environments in torchwheel's cache for another wheel, 5 GB each",
    ),
    option(
        "--record", type=Path, default=Path("dist", "compat.json"), help="default: dist/compat.json"
    ),
)
def compat(options: argparse.Namespace) -> int:
    """Run the smoke tests of a wheel with each torch and print a table."""
    from torchwheel.matrix.load import load
    from torchwheel.pipeline.project import project_folder, tests_folder
    from torchwheel.smoke.compat import compat, compat_text
    from torchwheel.smoke.interpreter import find_interpreter, running_interpreter
    from torchwheel.toolkit.cache import cache_folder

    matrix, root = load(options.matrix), options.matrix.resolve().parent
    source = project_folder(matrix, root, cache_folder(), Terminal())
    pythons = [find_interpreter(name) for name in options.python or ()]
    with Terminal().live_line() as progress:
        rows = compat(
            options.wheel,
            options.torch or [f"{minor}.0" for minor in matrix.torch],
            tests=tests_folder(matrix, root, source),
            requires=matrix.smoke.requires,
            record=options.record,
            progress=progress,
            pythons=pythons or [running_interpreter()],
            without_gpu=() if options.all_tests else matrix.without_gpu,
            cache=cache_folder() if options.keep else None,
        )
    print(f"{compat_text(rows)}record: {options.record}")
    return int(not all(row.ok for row in rows))


@command(
    "assemble",
    "Verify the artifacts of a release; write it as one folder.",
    MATRIX,
    option("folder", type=Path, nargs="+", help="wheels and records, or folders of them"),
    option(
        "--selection",
        action="append",
        help="selection, variant id or pattern that must be there; may be repeated "
        "(default: release)",
    ),
    option("--version", help="the release, e.g. 1.0.0 or the tag v1.0.0"),
    GPU,
    option("--earlier", type=Path, help="folder of the catalogues of earlier releases"),
    option(
        "--commit",
        help="the commit that every file must be made from: then each must be signed by a workflow "
        "that the matrix names (default: signatures are not asked for)",
    ),
    option("--repository", help="address of the workflows' repository (default: the matrix's)"),
    TRUSTED_ROOT,
    option("--pypi", action="store_true", help="refuse what PyPI would refuse of its files, too"),
    option("--out", type=Path, default=Path("dist", "release"), help="default: dist/release"),
)
def assemble(options: argparse.Namespace) -> int:
    """Verify the artifacts and write the release's folder."""
    from torchwheel.release.assemble import Signatures, assemble

    signatures = None
    if options.commit:
        from torchwheel.evidence.bundles import open_verifier

        read = open_verifier(options.trusted_root).read
        signatures = Signatures(options.commit, read, options.repository)
    with Terminal().live_line() as progress:
        text = assemble(
            options.matrix,
            options.selection or ["release"],
            options.folder,
            options.out,
            progress,
            version=options.version or None,
            gpu=options.gpu,
            earlier=options.earlier,
            signatures=signatures,
            pypi=options.pypi,
        )
    print(f"{text}\n\nassembled in {options.out}")
    return 0


@command(
    "verify",
    "Verify who made a file, from which commit, by which workflow; offline.",
    option("file", type=Path, nargs="+", help="a wheel, or any file that was attested"),
    option("--repository", required=True, help="who must have made it: OWNER/NAME, or an address"),
    option(
        "--bundle",
        type=Path,
        nargs="+",
        help="files with attestations (default: each *.sigstore.json beside the file and in the "
        "folder evidence there)",
    ),
    option("--sha256", help="the hash that the file must have"),
    option("--sums", type=Path, help="SHA256SUMS or catalogue.json with the hash"),
    option("--commit", help="the commit that it must be made from"),
    option(
        "--ref",
        help="the ref, or pattern of refs, that it must be made from (default: refs/tags/*)",
    ),
    option("--workflow", help="path of the workflow file that must have made it"),
    option(
        "--sources",
        type=Path,
        help="a checkout of the commit; each file is then the record of a smoke test, which must "
        "have run after the commit and before the signature",
    ),
    option("--issuer", help="who vouched for the job (default: GitHub Actions)"),
    TRUSTED_ROOT,
)
def verify(options: argparse.Namespace) -> int:
    """Print a line for each check of each file."""
    from torchwheel.evidence.bundles import open_verifier
    from torchwheel.evidence.policy import RELEASES, Policy, commit_hash, repository_address
    from torchwheel.evidence.verify import Expected, verify, verify_text
    from torchwheel.matrix.sections import ISSUER
    from torchwheel.release.dates import judge_date

    policy = Policy(
        repository_address(options.repository),
        options.issuer or ISSUER,
        {"named": options.workflow} if options.workflow else {},
        commit_hash(options.commit) if options.commit else None,
        options.ref or RELEASES,
    )
    date = partial(judge_date, sources=options.sources) if options.sources else None
    expected = Expected(policy, options.sha256, options.sums, date)
    verifier = open_verifier(options.trusted_root)
    status = 0
    for file in options.file:
        checks = verify(file, options.bundle, expected, verifier.read)
        print(verify_text(file, checks), end="")
        status = max(status, int(not all(check.ok for check in checks)))
    return status


@command(
    "index build",
    "Build the index of all releases from their catalogues; the wheels stay in their store.",
    option(
        "catalogue", type=Path, nargs="+", help="catalogues, or folders of releases' catalogues"
    ),
    option(
        "--address",
        help="address of a release's files, with {tag} for its tag: https://HOST/releases/{tag}; "
        "relative ones begin at the index's root (default in a job of GitHub's: its releases)",
    ),
    option(
        "--yanked", type=Path, default=Path("yanked.yaml"), help="what was withdrawn (yanked.yaml)"
    ),
    option("--out", type=Path, default=Path("dist", "index"), help="default: dist/index"),
    option(
        "--repository",
        help="address of the repository whose workflow must have signed each catalogue at a tag "
        "(default: signatures are not asked for)",
    ),
    MATRIX,
    TRUSTED_ROOT,
)
def index_build(options: argparse.Namespace) -> int:
    """Write the index's folder."""
    from torchwheel.index.build import build_index_of_releases, without_collector
    from torchwheel.index.store import store_of

    store = store_of(options.address, os.environ)
    places, out = options.catalogue, options.out
    atexit.register(gc.freeze)  # else Python looks through all objects when it ends
    with without_collector():
        believed = _believed_releases(options) if options.repository is not None else None
        print(build_index_of_releases(places, store, options.yanked, out, believed))
    return 0


def _believed_releases(options: argparse.Namespace) -> "BelievedReleases":
    """Whose signatures an index asks for."""
    from torchwheel.evidence.bundles import open_verifier
    from torchwheel.evidence.files import BelievedReleases
    from torchwheel.evidence.policy import release_policies
    from torchwheel.evidence.verified import open_verified
    from torchwheel.matrix.load import load

    section, where = load(options.matrix).evidence, str(options.matrix)
    policies = release_policies(section, where, repository=options.repository)
    unsigned = frozenset(section.unsigned if section else ())
    read = open_verifier(options.trusted_root).read
    return BelievedReleases(policies, read, unsigned, open_verified(policies, options.trusted_root))


@command(
    "index serve",
    "Serve an index on loopback.",
    option("folder", type=Path, nargs="?", default=Path("dist/index")),
    option("--port", type=port_number, default=8000),
)
def index_serve(options: argparse.Namespace) -> int:
    """Serve the folder until the user stops it."""
    from torchwheel.index.serve import serve

    serve(options.folder, options.port)
    return 0


@command(
    "assets",
    "Publish a release folder as the release of a tag: a draft first, complete or not at all.",
    option("tag", help="the tag, e.g. v1.0.0"),
    option("folder", type=Path, help="what `assemble` wrote"),
    option("--attestation", type=Path, help="the bundle that attests its files; published too"),
    option(
        "--unsigned",
        action="store_true",
        help="publish without it, although the matrix has a section `evidence`",
    ),
    MATRIX,
)
def assets(options: argparse.Namespace) -> int:
    """Fill a draft with what is missing, compare, publish. Needs gh, logged in."""
    from torchwheel.matrix.load import load
    from torchwheel.release.assets import publish_assets

    if options.attestation is None and not options.unsigned and load(options.matrix).evidence:
        raise UsageError(
            f"{options.tag}: expected --attestation, as {options.matrix} has a section `evidence`, "
            "found none; later releases refuse a catalogue without it, so name it, or say "
            "--unsigned"
        )
    with Terminal().live_line() as progress:
        text = publish_assets(options.tag, options.folder, options.attestation, progress)
    print(text)
    return 0


@command(
    "dispatch",
    "Run a workflow on a branch of the forge and wait for it.",
    option("workflow", help="name of its file, e.g. index.yml"),
    option("branch", help="the branch it runs on"),
    option("reason", help="what tells the run from others; the input `reason` of the workflow"),
)
def dispatch(options: argparse.Namespace) -> int:
    """Start the workflow and wait. Needs gh, logged in."""
    from torchwheel.release.assets import dispatch

    with Terminal().live_line() as progress:
        text = dispatch(options.workflow, options.branch, options.reason, progress)
    print(text)
    return 0


@command(
    "published",
    "Compare what is public of a tag with a release folder.",
    option("tag", help="the tag, e.g. v1.0.0"),
    option("folder", type=Path, help="what `assemble` wrote"),
    option("--pypi", action="store_true", help="PyPI must have the files of its folder pypi, too"),
)
def published(options: argparse.Namespace) -> int:
    """Compare hashes. Needs gh, logged in."""
    from torchwheel.release.assets import check_published

    with Terminal().live_line() as progress:
        text = check_published(options.tag, options.folder, progress, pypi=options.pypi)
    print(text)
    return 0


index = group("index", "Build or serve a package index.", index_build, index_serve)

COMMANDS = (check, inspect, smoke, compat, assemble, verify, index, assets, dispatch, published)
