"""Commands about this machine and its projects, from toolkit and doctor to new and adopt."""

import argparse
import shlex
from pathlib import Path

from torchwheel_runtime.arguments import MATRIX, PROGRESS, SIGNER, command, group, one_of, option
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.doctor import HELP as DOCTOR_HELP
from torchwheel_runtime.doctor import OPTIONS as DOCTOR_OPTIONS
from torchwheel_runtime.doctor import run_doctor
from torchwheel_runtime.errors import UsageError


@command(
    "toolkit",
    "Provision and verify a toolkit; print its CUDA_HOME.",
    MATRIX,
    option("name", help="a toolkit of the matrix, e.g. cu130"),
    PROGRESS,
    examples=("toolkit cu130",),
    page="containers.md",
    extra="pipeline",
)
def toolkit(options: argparse.Namespace) -> int:
    """Provision a toolkit of the matrix."""
    from torchwheel.matrix.load import load
    from torchwheel.toolkit.provide import provide
    from torchwheel_runtime.text import nearest
    from torchwheel_runtime.toolkit.cache import cache_folder
    from torchwheel_runtime.toolkit.host import host_compiler

    matrix = load(options.matrix)
    if options.name not in matrix.toolkits:
        raise UsageError(
            f"no toolkit {options.name!r} in {options.matrix}; "
            f"{nearest(options.name, matrix.toolkits)}"
        )
    toolkit, platform = matrix.toolkit(options.name), matrix.platforms[0]
    with Terminal().live_line() as progress:
        root = provide(toolkit, platform, host_compiler(), cache_folder(), progress)
    print(f"CUDA_HOME={root}")
    return 0


@command(
    "doctor",
    DOCTOR_HELP,
    *DOCTOR_OPTIONS,
    option(
        "--all",
        action="store_true",
        help="read every package with native code and import none; so do the options below",
    ),
    option("--torch", help='judge as after a move to it: "2.15", "2.15+cu130", "2.15+cpu"'),
    option("--python", help='after a move to it, e.g. "3.14"'),
    option("--driver", metavar="CUDA", help="to a driver that serves this CUDA, e.g. 12.8"),
    option("--gpu", metavar="ARCH", help='to a GPU, e.g. "12.0" or "gfx942"'),
    option("--glibc", help='to a system with it, e.g. "2.28"'),
    option("--index", metavar="URL", help="the index to ask for what to install instead"),
    examples=("doctor", "doctor demo", "doctor --all --torch 2.15", "doctor demo --python 3.14"),
    page="doctor.md",
)
def doctor(options: argparse.Namespace) -> int:
    """Examine this machine and packages on it."""
    moves = (options.torch, options.python, options.driver, options.gpu, options.glibc)
    if not (options.all or options.index or any(moves)):
        return run_doctor(options)
    from torchwheel.install.packages import run_doctor_on_all

    return run_doctor_on_all(options)


@command(
    "install",
    "Install the wheel of an index that fits this machine and its torch, which stays as it is.",
    option(
        "name",
        nargs="*",
        help='the project, e.g. "demo" or "demo==1.0.0", or the file of a wheel; several with '
        "--bundle, none with --from",
    ),
    option(
        "--index",
        metavar="URL",
        help="the index: https://, file://, or http:// on loopback; a file needs none",
    ),
    option(
        "--python",
        help='a Python of the environment ("3.12" or a path; default: this one)',
    ),
    option("--dry-run", action="store_true", help="choose, and change nothing"),
    option("--why", action="store_true", help="list each other wheel with why not; change nothing"),
    option("--json", action="store_true", help="print the judgements as JSON; change nothing"),
    option(
        "--installer",
        choices=["pip", "uv"],
        help="what installs (default: the environment's pip, else uv)",
    ),
    option("--no-deps", action="store_true", help="leave the wheel's other requirements alone"),
    one_of(
        option(
            "--bundle",
            type=Path,
            metavar="FOLDER",
            help="install nothing: write all that it would bring into a folder, for a machine that "
            "is as this one and has no network",
        ),
        option(
            "--from",
            dest="source",
            type=Path,
            metavar="FOLDER",
            help="verify such a folder, install what it has, and run its smoke tests",
        ),
    ),
    option("--tests", type=Path, metavar="FOLDER", help="smoke tests that go into the bundle"),
    option("--sha256", help="the hash that the manifest of the bundle must have"),
    option(
        "--repository",
        help="who must have signed the wheel: OWNER/NAME, or an address (default: an attestation "
        "that the index offers is verified, whoever signed)",
    ),
    *SIGNER,
    option("--trusted-root", help='file with the root of trust, or "latest"'),
    PROGRESS,
    examples=(
        "install fusedops --index https://host/index",
        "install fusedops==1.0.0 --index https://host/index --why",
        "install dist/demo-1.0.0-py3-none-any.whl",
        "install fusedops --index https://host/index --bundle carried --tests tests/smoke",
        "install --from carried",
    ),
    page="install.md",
)
def install(options: argparse.Namespace) -> int:
    """Choose a wheel and install it, here or by a bundle."""
    if options.sha256 and not options.source:
        raise UsageError("--sha256 goes with --from FOLDER")
    if options.tests and not options.bundle and not options.source:
        raise UsageError("--tests goes with --bundle FOLDER")
    if options.bundle or options.source:
        from torchwheel.install.offline import install_bundle, make_bundle

        return make_bundle(options) if options.bundle else install_bundle(options)
    from torchwheel.install.installer import run_install

    return run_install(options)


@command(
    "new",
    "Start an extension: a kernel, tests, matrix, sessions, workflow.",
    option("name", help='the project\'s name, e.g. "my-kernels"'),
    option("--folder", type=Path, default=Path(), help="where its folder is made (default: here)"),
    examples=("new my-kernels",),
    page="adopt.md",
    extra="pipeline",
)
def new_project(options: argparse.Namespace) -> int:
    """Write the folder of a new extension."""
    import tempfile

    from torchwheel.pipeline.bundled import own_wheels
    from torchwheel.scaffold.new import new_project

    with tempfile.TemporaryDirectory(prefix="torchwheel-") as scratch:
        folder = new_project(options.name, options.folder, own_wheels(Path(scratch)))
    print(f"{folder}: written. Next:\n  cd {shlex.quote(str(folder))}\n  {_NOX}")
    return 0


# By hash, as the workflows install it, and in an environment of its own: the user's has other
# releases of these packages.
_NOX = (
    "python -m venv .nox/nox\n"
    "  .nox/nox/bin/pip install --require-hashes -r .github/actions/nox/requirements.txt\n"
    "  .nox/nox/bin/nox"
)


@command(
    "adopt",
    "Give an existing extension its matrix and workflow; its setup.py is read, not run.",
    option("folder", type=Path, help="the project's folder: setup.py or pyproject.toml is in it"),
    option(
        "--into",
        type=Path,
        help="the folder that gets the files (default: the top of the project's repository)",
    ),
    option(
        "--source",
        default="",
        help='with --into: where builds find the project, "NAME==VERSION" or "git+https://…@REF"',
    ),
    option("--name", default="", help="the project's name, where its files do not spell it out"),
    one_of(
        option(
            "--workflows",
            default="",
            metavar="OWNER/NAME@COMMIT",
            help="the repository that has torchwheel's workflows, which the project's calls",
        ),
        option(
            "--vendor",
            action="store_true",
            help="give the project copies of the workflows, and torchwheel's wheels with a lock",
        ),
    ),
    option(
        "--replace",
        action="append",
        default=[],
        metavar="PATH",
        help='a file that may be replaced, or "all"; may be repeated',
    ),
    examples=(
        "adopt ./my-extension",
        "adopt ./flash-attention --into ./flash-wheels --source flash-attn==2.8.3",
    ),
    page="adopt.md",
    extra="pipeline",
)
def adopt(options: argparse.Namespace) -> int:
    """Read a foreign project and write the files that build and release it."""
    import contextlib
    import tempfile

    from torchwheel.evidence.policy import CALLER
    from torchwheel.pipeline.bundled import own_wheels
    from torchwheel.pipeline.sources import source_files
    from torchwheel.scaffold import adopt
    from torchwheel.scaffold.foreign import read_project

    if bool(options.into) != bool(options.source):
        raise UsageError("adopt: expected --into and --source together, found one; pass both")
    project = read_project(options.folder, options.name)
    source_files(options.folder)  # no build takes a link that leads out
    into, source = adopt.place_of(options.folder)
    if options.into:
        into, source = options.into, options.source
    elif source == ".":
        into = options.folder
    with contextlib.ExitStack() as stack:
        wheels: tuple[Path, ...] = ()
        if options.vendor:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="torchwheel-"))
            wheels = tuple(own_wheels(Path(scratch)))
        files = dict(adopt.project_files(project, source, wheels, options.workflows))
        if not options.vendor and not adopt.may_write(into / adopt.NOXFILE, files, options.replace):
            del files[adopt.NOXFILE]
        planned = adopt.plan(into, files, options.replace)
        notes = adopt.notes(options.folder, into, files)
        adopt.write_files(into, planned)
    print(adopt.report(project, into, planned, notes))
    enter = "" if into.resolve() == Path.cwd() else f"  cd {shlex.quote(str(into))}\n"
    print(f"Next:\n{enter}  " + (f"{_NOX} -s matrix" if wheels else "torchwheel matrix"))
    if not wheels and not options.workflows:
        print(
            "Before a push: name torchwheel's repository and a commit of it, in place of "
            f"{adopt.PLACEHOLDER}, in the line `uses:` of {into / CALLER}"
        )
    return 0


@command(
    "jit",
    "Build now what an extension would build at its first call.",
    option("package", help="the extension's package, e.g. fusedops"),
    PROGRESS,
    examples=("jit demo",),
    page="runtime.md",
)
def jit(options: argparse.Namespace) -> int:
    """Build the operators of a package that have no prebuilt library here."""
    import importlib

    from torchwheel_runtime import runtime
    from torchwheel_runtime.os_errors import explain
    from torchwheel_runtime.runtime.status import cpu_torch

    try:
        importlib.import_module(options.package)
    except Exception as error:  # an import runs the package, which may raise anything
        problem = f"{options.package}: cannot be imported: {explain(error)}"
        raise UsageError(f"{problem}; `torchwheel doctor` says more") from error
    runtime.load_now(options.package)
    status = runtime.status_of(options.package)
    if status is None:
        raise UsageError(
            f"{options.package}: is no extension that torchwheel's run-time half loads"
        )
    if not status.waits:
        print(f"{options.package}: nothing to build: {status.summary(cpu_torch())}")
        return int(status.failed)
    status = runtime.build_now(options.package) or status
    for operator in status.operators:
        print(f"{operator.operator:<20} {operator.text}")
    return int(not status.native)


@command(
    "cache list",
    "Print what torchwheel keeps for later: how large, when last used, what brings it back.",
    option("cache", nargs="?", help="what is in one of them; the libraries of jit are checked"),
    examples=("cache list", "cache list jit"),
    page="runtime.md",
)
def cache_list(options: argparse.Namespace) -> int:
    """Print the table of all caches, or of one."""
    from torchwheel.caches import list_caches

    print(list_caches(options.cache))
    return 0


@command(
    "cache clean",
    "Remove what torchwheel keeps for later, unless a running process uses it.",
    option("caches", metavar="cache", nargs="*", help="which, e.g. toolkits (default: all)"),
    option("--older-than", metavar="AGE", help='what was last used longer ago, e.g. "30d"'),
    option("-n", "--dry-run", action="store_true", help="say what would go; remove nothing"),
    examples=(
        "cache clean --dry-run",
        "cache clean --older-than 30d",
        "cache clean smoke toolkits",
    ),
    page="runtime.md",
)
def cache_clean(options: argparse.Namespace) -> int:
    """Remove what is in caches and say what stays."""
    from torchwheel.caches import clean_caches

    print(clean_caches(options.caches, options.older_than, dry_run=options.dry_run))
    return 0


cache = group("cache", "List or remove what torchwheel keeps for later.", cache_list, cache_clean)
