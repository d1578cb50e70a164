"""Commands that publish proven wheels."""

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel_runtime.arguments import (
    GPU,
    MATRIX,
    PROGRESS,
    SIGNER,
    command,
    group,
    option,
    port_number,
)
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.errors import UsageError

if TYPE_CHECKING:
    from torchwheel.evidence.files import Believed

HANDOVER = (
    option(
        "--sums",
        help="the sha256 of SHA256SUMS, as `assemble --output` wrote it: the folder must hold "
        "exactly the files that it lists",
    ),
    option(
        "--attestation",
        type=Path,
        help="the bundle that attests its files; the workflow of the role release must have signed",
    ),
    option("--commit", help="the commit that it must be made from"),
    option("--repository", help="address of the workflow's repository (default: the matrix's)"),
    MATRIX,
)
"""What a job knows of a release folder that another job has assembled."""
TRUSTED_ROOT = option(
    "--trusted-root",
    help='file with the root of trust, or "latest" for the one that Sigstore has now (default: '
    "TORCHWHEEL_TRUSTED_ROOT, else the one of the installed sigstore)",
)


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
    option(
        "--output",
        type=Path,
        help="append to this file the output of a step: sums=…, the sha256 of SHA256SUMS, by which "
        "the jobs after it know this release",
    ),
    PROGRESS,
    examples=("assemble artifacts --version v1.0.0",),
    page="ci.md",
    extra="pipeline",
)
def assemble(options: argparse.Namespace) -> int:
    """Verify the artifacts and write the release's folder."""
    from torchwheel.matrix.render import append_github_output
    from torchwheel.release.assemble import Signatures, assemble
    from torchwheel.release.folder import SUMS
    from torchwheel_runtime.files import sha256

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
    if options.output:
        append_github_output({"sums": f"{sha256(options.out / SUMS)}\n"}, options.output)
    print(f"{text}\n\nassembled in {options.out}")
    return 0


@command(
    "verify",
    "Verify who made a file, from which commit, by which workflow; offline.",
    option(
        "file",
        type=Path,
        nargs="+",
        help="a wheel, or any file that was attested; a folder stands for all files in it, apart "
        "from bundles",
    ),
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
        help="the ref, or pattern of refs, that it must be made from (default: the tag of the "
        "version in its name, such as refs/tags/v1.0.0; of any version where the name has none)",
    ),
    *SIGNER,
    option(
        "--sources",
        type=Path,
        help="a checkout of the commit; each file is then the record of a smoke test, which must "
        "have run after the commit and before the signature",
    ),
    option("--issuer", help="who vouched for the job (default: GitHub Actions)"),
    TRUSTED_ROOT,
    examples=("verify demo-1.0.0-py3-none-any.whl --repository owner/demo",),
    page="security.md",
    extra="evidence",
)
def verify(options: argparse.Namespace) -> int:
    """Print a line for each check of each file."""
    from torchwheel.evidence.bundles import open_verifier
    from torchwheel.evidence.policy import version_of_file, wheel_policy
    from torchwheel.evidence.verify import files_in, verify, verify_text
    from torchwheel.matrix.sections import ISSUER
    from torchwheel.release.sources import judge_date

    date = partial(judge_date, sources=options.sources) if options.sources else None
    verifier = open_verifier(options.trusted_root)
    status = 0
    for file in files_in(options.file, options.bundle):
        policy = wheel_policy(
            options.repository,
            options.issuer or ISSUER,
            version_of_file(file.name),
            workflow=options.workflow,
            self_hosted=options.self_hosted,
            commit=options.commit,
            ref=options.ref,
        )
        checks = verify(
            *(file, options.bundle, policy, verifier.read),
            known=options.sha256,
            sums=options.sums,
            date=date,
        )
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
    option(
        "--docs",
        default="",
        metavar="ADDRESS",
        help="of the documentation that is published with the index, e.g. docs/ "
        "(default: the one that the wheels name)",
    ),
    MATRIX,
    TRUSTED_ROOT,
    examples=("index build catalogues --address 'https://host/releases/{tag}'",),
    page="ci.md",
    extra="pipeline",
)
def index_build(options: argparse.Namespace) -> int:
    """Write the index's folder."""
    from torchwheel.index.listing import store_of
    from torchwheel.index.writer import build_index_of_releases

    store = store_of(options.address, os.environ)
    places, out = options.catalogue, options.out
    believed = _believed_releases(options) if options.repository is not None else None
    docs = options.docs
    print(build_index_of_releases(places, store, options.yanked, out, believed, docs))
    return 0


def _believed_releases(options: argparse.Namespace) -> "Believed":
    """Whose signatures an index asks for."""
    from torchwheel.evidence.bundles import open_verifier
    from torchwheel.evidence.files import Believed, open_verified
    from torchwheel.evidence.policy import release_policies
    from torchwheel.matrix.load import load

    section, where = load(options.matrix).evidence, str(options.matrix)
    policies = release_policies(section, where, repository=options.repository)
    unsigned = frozenset(section.unsigned if section else ())
    read = open_verifier(options.trusted_root).read
    return Believed(policies, read, unsigned, open_verified(policies, options.trusted_root))


@command(
    "index serve",
    "Serve an index on loopback.",
    option("folder", type=Path, nargs="?", default=Path("dist/index")),
    option("--port", type=port_number, default=8000),
    examples=("index serve", "index serve dist/index --port 8080"),
    page="installers.md",
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
    option(
        "--unsigned",
        action="store_true",
        help="publish without an attestation, although the matrix has a section `evidence`",
    ),
    *HANDOVER,
    TRUSTED_ROOT,
    PROGRESS,
    examples=("assets v1.0.0 dist/release",),
    page="ci.md",
    extra="pipeline",
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
    if options.sums is not None or options.attestation:
        print(_check_handover(options))
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
    PROGRESS,
    examples=("dispatch index.yml main 'release v1.0.0'",),
    page="ci.md",
    extra="pipeline",
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
    *HANDOVER,
    TRUSTED_ROOT,
    PROGRESS,
    examples=("published v1.0.0 dist/release --pypi",),
    page="ci.md",
    extra="pipeline",
)
def published(options: argparse.Namespace) -> int:
    """Compare hashes. Needs gh, logged in."""
    from torchwheel.release.assets import check_published

    if options.sums is not None or options.attestation:
        print(_check_handover(options))
    with Terminal().live_line() as progress:
        text = check_published(
            options.tag,
            options.folder,
            progress,
            attestation=options.attestation,
            pypi=options.pypi,
        )
    print(text)
    return 0


@command(
    "handover",
    "Verify a release folder that another job has assembled: its files, and who attested them.",
    option("folder", type=Path, help="what `assemble` wrote"),
    *HANDOVER,
    TRUSTED_ROOT,
    examples=("handover dist/release --sums SHA256",),
    page="ci.md",
    extra="pipeline",
)
def handover(options: argparse.Namespace) -> int:
    """Print one line."""
    print(_check_handover(options))
    return 0


def _check_handover(options: argparse.Namespace) -> str:
    """Verify the release folder of a command with the options HANDOVER."""
    from torchwheel.release.assets import check_handover

    believed = None
    if options.attestation:
        from torchwheel.evidence.bundles import open_verifier
        from torchwheel.evidence.files import Believed
        from torchwheel.evidence.policy import RELEASES, policy_of
        from torchwheel.matrix.load import load

        policy = policy_of(
            load(options.matrix).evidence,
            str(options.matrix),
            repository=options.repository,
            commit=options.commit,
            ref=RELEASES,
        )
        believed = Believed((policy,), open_verifier(options.trusted_root).read)
    return check_handover(options.folder, options.sums, options.attestation, believed)


index = group("index", "Build or serve a package index.", index_build, index_serve)
