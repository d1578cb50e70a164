"""Sessions for laptops and CI; each only calls torchwheel or a tool. `nox -l` lists them."""

import hashlib
import os
import shutil
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["wheels", "tests"]

RUNTIME = "pkg/torchwheel_runtime"
TORCHWHEEL = ("-e", RUNTIME, "-e", "pkg/torchwheel[pipeline,evidence]")
PROJECTS = tuple(f"{name}/pyproject.toml" for name in (RUNTIME, "pkg/torchwheel"))
PIPELINE_LOCK = "pkg/torchwheel/src/torchwheel/data/pipeline.lock.txt"
DOCS_LOCK = "docs/requirements.txt"
# The release the suite runs on; the stable library is built for a lower one.
TORCH = "torch==2.13.0"
_NO_RUNTIME = ("--no-emit-package", "torchwheel-runtime")
# A worker more than cores: tests wait half of their time for servers, pip and time limits. A module
# stays in one worker, which makes its fixtures once. The folders of long tests come first, so that
# the workers end together.
SIDE_BY_SIDE = (
    f"--numprocesses={min((os.cpu_count() or 1) + 1, 4)}",
    *("--dist=loadfile", "--no-loadscope-reorder"),
)
# A release of a tool must not break a day's build: `nox -s lock` moves them.
CONSTRAINTS = "constraints.txt"


def group(name: str) -> list[str]:
    """The requirements of a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), name))


def install(session: nox.Session, *packages: str) -> None:
    """Install packages, at the versions of the constraints."""
    install_once(session, CONSTRAINTS, (*packages, "--constraint", CONSTRAINTS))


def install_by_hash(session: nox.Session, lock: str = PIPELINE_LOCK) -> None:
    """Install torchwheel for a session that a release runs, and by hash all that it needs."""
    locked = ("--require-hashes", "--only-binary=:all:", "--requirement", lock)
    own = ("--no-index", "--no-deps", "--no-build-isolation", "-e", RUNTIME, "-e", "pkg/torchwheel")
    install_once(session, lock, locked, own)


def torchwheel(session: nox.Session, command: str, *arguments: str, **how: bool) -> None:
    """Run a command of torchwheel, installed as a release installs it."""
    install_by_hash(session)
    try:
        session.run("torchwheel", command, *arguments, **how)
    except CommandFailed as failed:
        if getattr(failed, "return_code", 1) == 2:
            raise SystemExit(2) from None  # nox ends with 1: a wrong call is no failure
        raise


def install_once(session: nox.Session, lock: str, *calls: tuple[str, ...]) -> None:
    """Call pip once per content: a session that has everything already costs no pip run."""
    read = [Path(name).read_text() for name in (*PROJECTS, lock)]
    digest = hashlib.sha256("\n".join([*map(str, calls), *read]).encode()).hexdigest()
    stamp = Path(session.virtualenv.location) / "installed"
    if not stamp.exists() or stamp.read_text() != digest:
        for call in calls:
            session.install(*call)
        stamp.write_text(digest)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build, repair, check, smoke-test and index wheels: nox -s wheels [-- VARIANT…]."""
    torchwheel(session, "wheels", *session.posargs)


@nox.session
def kernels(session: nox.Session) -> None:
    """Compile the kernels of toolkits once, for all their wheels: nox -s kernels -- TOOLKIT…."""
    torchwheel(session, "kernels", *session.posargs)


@nox.session
def images(session: nox.Session) -> None:
    """Pull or build the images that variants need: nox -s images [-- VARIANT… --push]."""
    torchwheel(session, "images", *session.posargs)


@nox.session(name="base-images")
def base_images(session: nox.Session) -> None:
    """Make base images where no registry can be reached: nox -s base-images [-- VARIANT…]."""
    torchwheel(session, "base-images", *session.posargs)


@nox.session
def matrix(session: nox.Session) -> None:
    """Print the matrix: nox -s matrix [-- --json | --github | --kernels] [VARIANT…]."""
    torchwheel(session, "matrix", *session.posargs, silent=False)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test suite: nox -s tests [-- [nightly] PYTEST OPTIONS]."""
    install(session, *TORCHWHEEL, TORCH, *group("tests"))
    env = {
        # Threads of torch in several workers would only wait for each other.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # Hundreds of processes import the same modules; with the variable each compiles them.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    options = list(session.posargs)
    if options[:1] == ["nightly"]:
        # The tests that are too long or too rare for every push.
        options[:1] = ["-m", "nightly"]
    session.run("pytest", *SIDE_BY_SIDE, *options, env=env)


@nox.session(venv_backend="none")
def mutate(session: nox.Session) -> None:
    """Break guarded places and see the tests fail: nox -s mutate [-- NAME… -j 2]."""
    python = Path(".nox", "tests", "bin", "python").absolute()
    if not python.exists():
        session.error("needs the environment of the tests: nox -s tests --install-only")
    session.run(str(python), "tests/mutate.py", *session.posargs, external=True)


@nox.session
def faults(session: nox.Session) -> None:
    """Kill runs, cut the power, fill disks: nox -s faults [-- KILLS | root] [PYTEST OPTIONS]."""
    install(session, *TORCHWHEEL, "pytest", "pytest-xdist", "hypothesis")
    first, *others = session.posargs or ("",)
    if first == "root":
        # root can be every user of the attack and mount small disks, so nothing may be skipped.
        call = (f"{session.bin}/python", "-m", "pytest", *SIDE_BY_SIDE, "-p", "no:cacheprovider")
        limits = ("-m", "", "--seconds", "300", "--no-skips")
        # sudo gives programs a PATH of its own.
        become = ("sudo", "env", f"PATH={session.bin}:{os.environ['PATH']}")
        session.run(*become, *call, "tests/faults", *limits, *others, external=True)
        return
    options = ("-m", "", "--kills", first, *others) if first.isdigit() else session.posargs
    session.run("pytest", *SIDE_BY_SIDE, "tests/faults", *options)


@nox.session
def rehearse(session: nox.Session) -> None:
    """Rehearse a release on loopback: nox -s rehearse -- 1.2.3rc1 [FORM] [--record FILE]."""
    install(session, *TORCHWHEEL, *group("rehearsal"))
    env = {"PYTHONPATH": "tests"}
    session.run("python", "-m", "rehearsal.rehearse", *session.posargs, env=env)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz what reads foreign files: nox -s fuzz [-- MINUTES --seed N --target NAME]."""
    install_by_hash(session)
    session.run("python", "tests/fuzz/fuzz.py", *session.posargs)


@nox.session(venv_backend="none")
def emulate(session: nox.Session) -> None:
    """Run the kernels on modelled GPUs: nox -s emulate [-- FAMILY… --model sm_90 --seeds N]."""
    run_for_tests(session, "tests/emulation/emulate.py")


@nox.session(venv_backend="none")
def planted(session: nox.Session) -> None:
    """Plant faults in the kernels and see nox -s emulate find them: nox -s planted [-- NAME…]."""
    run_for_tests(session, "tests/emulation/planted.py")


def run_for_tests(session: nox.Session, script: str) -> None:
    """Run a script in the environment of the tests, which is made first if there is none."""
    python = Path(".nox", "tests", "bin", "python").absolute()
    if not python.exists():
        session.run("nox", "-s", "tests", "--install-only", external=True)
    session.run(str(python), script, *session.posargs, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Format, lint, types and layers; nothing is changed."""
    install(session, *TORCHWHEEL, TORCH, *group("lint"))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports", env={"PYTHONPATH": "pkg"})
    folders = Path("csrc"), Path("pkg/torchwheel_runtime/src/torchwheel_runtime/include")
    files = (path for folder in folders for path in folder.rglob("*"))
    sources = sorted(str(p) for p in files if p.suffix in {".h", ".cu", ".cpp", ".cuh"})
    session.run("clang-format", "--dry-run", "--Werror", *sources)


@nox.session
def workflows(session: nox.Session) -> None:
    """Lint the workflows, offline; nothing is changed."""
    install(session, *group("workflows"))
    for schema, files in {
        "vendor.github-workflows": "workflows/*.yml",
        "custom.github-workflows-require-timeout": "workflows/*.yml",
        "vendor.github-actions": "actions/*/action.yml",
        "vendor.dependabot": "dependabot.yml",
    }.items():
        found = sorted(map(str, Path(".github").glob(files)))
        session.run("check-jsonschema", "--builtin-schema", schema, *found)
    # What `nox -s matrix -- --gitlab …` prints here and for a project in shards; unit tests hold
    # the files to it.
    pipelines = [f"tests/unit/matrix/golden/{name}.json" for name in ("gitlab", "gitlab-shards")]
    session.run("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", *pipelines)
    session.run("zizmor", "--offline", "--strict-collection", "--persona=pedantic", ".github")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation's site: nox -s docs [-- FOLDER]; the default is dist/docs."""
    install_by_hash(session, DOCS_LOCK)
    folder = session.posargs[0] if session.posargs else "dist/docs"
    session.run("sphinx-build", "-W", "--keep-going", "--quiet", "--jobs", "auto", "docs", folder)


@nox.session
def lock(session: nox.Session) -> None:
    """Pin anew what is installed: constraints.txt, and the locks with hashes."""
    session.install("uv", "--constraint", CONSTRAINTS)
    pyproject = "pkg/torchwheel/pyproject.toml"
    groups = [f"--group={name}" for name in ("build", "tests", "lint", "workflows", "docs")]
    # Our other half is installed from this tree.
    extras = ("--extra", "pipeline", "--extra", "evidence", *_NO_RUNTIME, pyproject)
    # An older pip refuses a project of which another wants an extra that its line does not name.
    hashed = ("--generate-hashes", "--no-strip-extras")
    nox_action = ".github/actions/nox/"
    for output, *arguments in (
        (CONSTRAINTS, "--upgrade", *groups, *extras),
        (PIPELINE_LOCK, *hashed, "--constraint", CONSTRAINTS, "--group=build", *extras),
        (DOCS_LOCK, *hashed, "--constraint", CONSTRAINTS, "--group=docs", *extras),
        *(
            (f"{folder}requirements.txt", *hashed, "--upgrade", f"{folder}requirements.in")
            for folder in (nox_action, "docker/")
        ),
    ):
        _compile_lock(session, output, *arguments)
    # What wheels are tried with in a release: torch, pytest, and what the run-time half requires.
    wanted = Path(session.create_tmp(), "smoke.in")
    for output in map(str, sorted(Path("tests/locks").glob("torch*.txt"))):
        minor = Path(output).stem.removeprefix("torch")
        wanted.write_text(f"torch=={minor}.*\npytest\n")
        _compile_lock(
            session, output, *hashed, "--upgrade", str(wanted), f"{RUNTIME}/pyproject.toml"
        )
        # `==` takes a local build as well, such as 2.13.0+cpu, for which the lock has no hash.
        text = Path(output).read_text()
        Path(output).write_text(text.replace("\ntorch==", "\ntorch==="))


def _compile_lock(session: nox.Session, output: str, *arguments: str) -> None:
    session.run(
        *("uv", "pip", "compile", "--quiet", "--universal", "--no-annotate"),
        *("--python-version", "3.10", "--output-file", output, *arguments),
        env={"UV_CUSTOM_COMPILE_COMMAND": "nox -s lock"},
    )


@nox.session
def smoke(session: nox.Session) -> None:
    """Smoke-test a wheel: nox -s smoke -- WHEEL [--here]."""
    torchwheel(session, "smoke", *session.posargs)


@nox.session
def compat(session: nox.Session) -> None:
    """Try a wheel with every torch that it claims: nox -s compat -- WHEEL."""
    torchwheel(session, "compat", *session.posargs)


@nox.session
def assemble(session: nox.Session) -> None:
    """Verify the artifacts of a release: nox -s assemble -- FOLDER… [--version 1.0.0]."""
    torchwheel(session, "assemble", *session.posargs)


@nox.session
def verify(session: nox.Session) -> None:
    """Verify who made files: nox -s verify -- FILE… --repository OWNER/NAME."""
    torchwheel(session, "verify", *session.posargs)


@nox.session(venv_backend="none")
def earlier(session: nox.Session) -> None:
    """Download the catalogues of all releases: nox -s earlier -- FOLDER."""
    folder = Path(*session.posargs or ("dist", "earlier"))
    folder.mkdir(parents=True, exist_ok=True)
    listing = ("gh", "release", "list", "--limit", "1000", "--exclude-drafts")
    query = ("--json", "tagName", "--jq", ".[].tagName")
    tags = session.run(*listing, *query, external=True, silent=True)
    for tag in str(tags).split():
        view = ("gh", "release", "view", tag, "--json", "assets", "--jq", ".assets[].name")
        names = str(session.run(*view, external=True, silent=True)).split()
        if "catalogue.json" not in names:
            session.warn(f"{tag}: no catalogue.json among its assets; the index will not list it")
            continue
        patterns = ("--pattern", "catalogue.json", "--pattern", "attestation.sigstore.json")
        command = ("gh", "release", "download", tag, "--clobber", "--dir", str(folder / tag))
        session.run(*command, *patterns, external=True)


@nox.session
def handover(session: nox.Session) -> None:
    """Verify a release folder of another job: nox -s handover -- FOLDER --sums SHA256."""
    torchwheel(session, "handover", *session.posargs)


@nox.session
def assets(session: nox.Session) -> None:
    """Publish a release folder as the release of a tag: nox -s assets -- TAG FOLDER."""
    torchwheel(session, "assets", *session.posargs)


@nox.session
def dispatch(session: nox.Session) -> None:
    """Run a workflow and wait for it: nox -s dispatch -- index.yml BRANCH REASON."""
    torchwheel(session, "dispatch", *session.posargs)


@nox.session
def published(session: nox.Session) -> None:
    """Compare what is public with a release folder: nox -s published -- TAG FOLDER."""
    torchwheel(session, "published", *session.posargs)


@nox.session(venv_backend="none")
def evidence(session: nox.Session) -> None:
    """Put an attestation beside the files it is of: nox -s evidence -- BUNDLE FILE."""
    if len(session.posargs) != 2:
        session.error("expected the bundle and its new place: nox -s evidence -- BUNDLE FILE")
    bundle, file = map(Path, session.posargs)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bundle, file)


@nox.session
def index(session: nox.Session) -> None:
    """Serve dist/index on loopback; build it of catalogues: nox -s index [-- build FOLDER]."""
    docs = ("--docs", "docs/") if "build" in session.posargs else ()
    torchwheel(session, "index", *(session.posargs or ("serve",)), *docs)
    if docs:
        session.notify("docs", ["dist/index/docs"])  # what is published has both


@nox.session
def bench(session: nox.Session) -> None:
    """Measure: nox -s bench -- pipeline; with a GPU, -- kernels or -- end_to_end [--out FILE]."""
    name, *options = session.posargs or ("pipeline",)
    if name in {"kernels", "end_to_end"}:
        # By file: an index may hold other distributions of these names.
        dist = Path("dist")
        built = sorted(dist.glob("fusedops-*+cu130-py3-*.whl")) or sorted(
            dist.glob("fusedops-*.whl")
        )
        if not built:
            session.error("needs a wheel in dist: nox -s wheels -- cu130-stable")
        wheels = [str(path) for path in (*built[-1:], *sorted(dist.glob("bundled/*.whl")))]
        session.install("torch>=2.11", "transformers", *wheels)
    else:
        install(session, *TORCHWHEEL, "nox")
    session.run("python", f"bench/{name}.py", *options)
