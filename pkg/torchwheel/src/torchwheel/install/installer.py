"""`torchwheel install`: choose a wheel of an index, or take a file; verify it, install it."""

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.install import explanation
from torchwheel.install.attestation import Trust
from torchwheel.install.downloaded import TORCH
from torchwheel.install.environment import TargetEnvironment, find_environment
from torchwheel.install.page import OfferedWheel
from torchwheel.install.plan import (
    Download,
    Ranking,
    choose,
    choose_file,
    is_met,
    parse_wanted,
    plan,
)
from torchwheel.interpreters import ask_interpreter
from torchwheel_runtime import process
from torchwheel_runtime.console import Progress, Terminal
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.fetch import Fetch, Fetcher, ca_bundle, check_address
from torchwheel_runtime.files import private_folder, temporary_variables
from torchwheel_runtime.pip import home_variables, own_variables, pip_reason
from torchwheel_runtime.text import escape, hide_secrets, quote, shorten_line
from torchwheel_runtime.toolkit.index import IndexedFile, read_report

Name = Literal["pip", "uv"]
_SECONDS = 3600


def run_install(options: argparse.Namespace) -> int:
    """Carry out the command. Exit status: 0 if a wheel fits and, unless asked not to, is there."""
    if len(options.name) != 1:
        found = ", ".join(map(quote, options.name)) or "none"
        raise UsageError(f"expected one project, found {found}; run it once for each")
    environment, fetch = find_environment(options.python), Fetcher()
    ranking = choose_wheel(options, options.index, options.name[0], environment, fetch)
    if not changes_nothing(options):
        with Terminal().live_line() as live:
            _install(options, ranking, environment, fetch, live)
    return 0


def changes_nothing(options: argparse.Namespace) -> bool:
    """Whether the call only shows what it would do."""
    return bool(options.dry_run or options.why or options.json)


def trust_of(options: argparse.Namespace, unsigned: Sequence[str] = ()) -> Trust:
    """Whose wheels a call believes; those of the projects `unsigned` need no attestation."""
    if options.workflow and not options.repository:
        raise UsageError("--workflow goes with --repository OWNER/NAME")
    return Trust(
        options.repository,
        options.trusted_root,
        options.workflow,
        options.self_hosted,
        frozenset(unsigned),
    )


def choose_wheel(
    options: argparse.Namespace,
    index: str | None,
    name: str,
    environment: TargetEnvironment,
    fetch: Fetch,
) -> Ranking:
    """Judge the wheels of a project, or a wheel's file, and print the judgements.

    Raises:
        TorchwheelError: none fits, or there is no torch yet.
    """
    trust_of(options)  # a wrong call ends before anything is asked
    wanted = None if name.endswith(".whl") else parse_wanted(name)
    if index:
        check_address(index)
    if wanted and not index:
        raise UsageError(f"{wanted}: expected --index URL, found none; a wheel's file needs none")
    if wanted and index:
        ranking = choose(index, wanted, environment, fetch)
    else:
        ranking = choose_file(Path(name), environment)
    if options.json:
        print(explanation.ranking_json(ranking, environment))
    else:
        print(explanation.ranking_text(ranking, environment, why=options.why), flush=True)
    problem = None if ranking.accepted else explanation.none_fits(ranking)
    if problem is None and not environment.torch:
        problem = explanation.no_torch(ranking)
    if problem:
        raise TorchwheelError(problem)
    return ranking


def _install(
    options: argparse.Namespace,
    ranking: Ranking,
    environment: TargetEnvironment,
    fetch: Fetcher,
    progress: Progress,
) -> None:
    program = find_installer(environment, options.installer)
    first = ranking.accepted[0]
    progress.step(f"download {first.candidate.file}")
    trust = trust_of(options)
    made = plan(options.index, first, environment, fetch, trust, dependencies=not options.no_deps)
    say_signatures(made.downloads, progress)
    # What may fail comes first, so that nothing is installed that lacks a requirement.
    if made.others:
        progress.step(f"{program.name} install {' '.join(map(str, made.others))}")
        install_others(program, made.others, environment, private_folder())
    install_verified(program, made.downloads, environment, progress)


def say_signatures(downloads: Sequence[Download], progress: Progress) -> None:
    """Say who made each wheel, or why nobody knows."""
    for download in downloads:
        state = "verified" if download.signature.ok else "not signed"
        progress.say(f"{download.path.name}: {state}: {escape(download.signature.says)}")


def install_verified(
    program: "Installer",
    downloads: Sequence[Download],
    environment: TargetEnvironment,
    progress: Progress,
) -> None:
    """Install wheels that were verified, and look whether they are there then."""
    progress.step(f"{program.name} install {downloads[0].path.name}")
    install_files(program, downloads)
    wheels = [download.wheel for download in downloads]
    named = [Requirement(f"{one.file.partition('-')[0]}==={one.version}") for one in wheels]
    check_installed(named, environment.program)
    files = ", ".join(wheel.file for wheel in wheels)
    progress.say(f"installed by {program.name}: {files}")


class Installer(NamedTuple):
    """A program that installs into an environment: its name, and what comes before its options."""

    name: Name
    command: tuple[str, ...]


def find_installer(environment: TargetEnvironment, wanted: Name | None = None) -> Installer:
    """The installer for an environment: its own pip, else uv, else the pip beside torchwheel.

    Raises:
        UsageError: there is none.
    """
    python = str(environment.program)
    pip = ("--disable-pip-version-check", "--no-input")
    if wanted != "uv" and "pip" in environment.installed:
        return Installer("pip", (*process.python_module(python, "pip"), *pip, "install"))
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    uv = shutil.which("uv", path=os.pathsep.join(places))
    if wanted != "pip" and uv:
        target = str(environment.program.absolute())
        return Installer("uv", (str(Path(uv).absolute()), "pip", "install", "--python", target))
    if wanted != "uv" and importlib.util.find_spec("pip"):
        ours = process.python_module(sys.executable, "pip")
        return Installer("pip", (*ours, "--python", python, *pip, "install"))
    raise UsageError(
        f"{python}: expected {wanted or 'pip or uv'}, found none; install it, "
        f"e.g. `{python} -m ensurepip`"
    )


def install_files(installer: Installer, downloads: Sequence[Download]) -> None:
    """Install wheels that were verified, each from its own address by its hash, and nothing else.

    pip and uv note the address (PEP 610), so `pip freeze` shows it. They trust whom `Fetcher` does.
    Where they cannot fetch it, the file that was verified is installed: uv asks a store for HEAD,
    which not all answer. Settings of the user count for neither: a target folder or a constraint
    is not what the command says that it does.
    """
    options, bundle = ["--no-deps", "--no-index", "--quiet"], ca_bundle()
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_")) or name.partition("_")[2] in _OF_TRANSFER
    }
    if installer.name == "pip":
        options += ["--force-reinstall", *(["--cert", str(bundle)] if bundle else [])]
        environ["PIP_CONFIG_FILE"] = os.devnull
    else:
        options += ["--reinstall", "--no-config"]
        trusted = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}  # two names, by uv's release
        environ |= {"SSL_CERT_FILE": str(bundle.absolute())} if bundle else trusted
        environ["UV_HTTP_RETRIES"] = "0"
    wheels = [download.wheel for download in downloads]
    # A query may be a token, which the environment would keep.
    if not any("?" in wheel.url for wheel in wheels):
        with contextlib.suppress(TorchwheelError):
            references = map(direct_reference, wheels)
            return _run(installer, [*options, "--require-hashes", *references], environ)
    folder = str(downloads[0].path.parent)
    named = [f"{wheel.file.partition('-')[0]}=={wheel.version}" for wheel in wheels]
    return _run(installer, [*options, "--find-links", folder, *named], environ)


_OF_TRANSFER = {
    *("CACHE_DIR", "NO_CACHE", "NO_CACHE_DIR", "LINK_MODE", "OFFLINE", "BREAK_SYSTEM_PACKAGES"),
    *("CERT", "CLIENT_CERT", "SYSTEM_CERTS", "NATIVE_TLS", "TRUSTED_HOST", "INSECURE_HOST"),
    *("PROXY", "TIMEOUT", "DEFAULT_TIMEOUT", "HTTP_TIMEOUT", "RETRIES"),
}
"""Settings of pip and uv that do not say what is installed, or where, without their prefixes."""


def direct_reference(wheel: OfferedWheel) -> str:
    """The requirement of a wheel at its address: `name @ url#sha256=...`.

    uv replaces ${NAME} in an address by a variable, which must not reach the index's host.
    """
    address = _NOT_IN_ADDRESSES.sub(lambda found: urllib.parse.quote(found[0]), wheel.url)
    return f"{wheel.file.partition('-')[0]} @ {address}#sha256={wheel.sha256}"


_NOT_IN_ADDRESSES = re.compile(r"[^!#%&'()*+,./0-9:=?@A-Z\[\]_a-z~-]")


def install_others(
    installer: Installer,
    requirements: Sequence[Requirement],
    environment: TargetEnvironment,
    folder: Path,
) -> None:
    """Install requirements that the index does not offer, from where the installer is set up.

    The constraint keeps torch: a requirement that needs another one is an error.
    """
    options = _constrained(requirements, environment, folder)
    if installer.name == "pip":
        _run(installer, options, own_variables(installer.command[:-1], os.environ))
    else:
        _run(installer, ["--no-upgrade", "--no-reinstall", "--deps", *options], os.environ)
    # Three, as 2.13.0 is none but 2.13.0: to "==" it is 2.13.0+cpu, too.
    known = environment.versions.get(canonicalize_name(TORCH))
    kept = [Requirement(f"torch==={Version(known)}")] if known else []
    check_installed([*requirements, *kept], environment.program)


def resolve_others(
    pip: Installer,
    requirements: Sequence[Requirement],
    environment: TargetEnvironment,
    folder: Path,
    chosen: Mapping[str, str],
) -> list[IndexedFile]:
    """The wheels that pip would install for requirements, beside those `chosen` by name."""
    report = folder / "report.json"
    options = ["--dry-run", "--report", str(report), "--only-binary=:all:"]
    options += _constrained(requirements, environment, folder, chosen)
    _run(pip, options, own_variables(pip.command[:-1], os.environ))
    known = set(map(canonicalize_name, chosen))
    return [file for file in read_report(report) if canonicalize_name(file.project) not in known]


def _constrained(
    requirements: Sequence[Requirement],
    environment: TargetEnvironment,
    folder: Path,
    chosen: Mapping[str, str] | None = None,
) -> list[str]:
    """The requirements, after the constraints that keep torch and the versions `chosen` by name."""
    constraints = folder / "constraints.txt"
    # PyPI's torch is installed as 2.13.0 and calls itself 2.13.0+cu130: pip knows the former.
    torch, known = environment.torch, environment.versions.get(canonicalize_name(TORCH))
    version = known or (torch.version if torch else None)
    pins = {**(chosen or {}), **({TORCH: version} if version else {})}
    lines = [f"{name}=={pin}\n" for name, pin in pins.items()]
    constraints.write_text("".join(lines), encoding="utf-8")
    # Without --quiet, by which pip leaves out what a conflict is caused by.
    return ["--constraint", str(constraints), *map(str, requirements)]


def check_installed(expected: Sequence[Requirement], python: Path) -> None:
    """Raise unless an environment has these now, whatever the installer has said."""
    installed = ask_interpreter(python).installed
    there = {canonicalize_name(name): version for name, version in installed.items()}
    for one in expected:
        version = there.get(canonicalize_name(one.name))
        if not is_met(one, version):
            raise TorchwheelError(
                f"{python}: expected {one} to be installed now, found {version or 'none'}; look at "
                "the settings of pip and uv"
            )


def _run(installer: Installer, options: Sequence[str], environ: Mapping[str, str]) -> None:
    doing = f"{installer.name} install"
    variables, folder = {**environ, **temporary_variables(), **home_variables()}, None
    if installer.name == "uv":
        # It obeys uv.toml and pyproject.toml of the folder that it runs in and of those above.
        variables, folder = {**variables, **_absolute_places(variables)}, "/"
    try:
        command = [*installer.command, *options]
        done = process.run(command, cwd=folder, env=variables, timeout=_SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{doing}: {error.reason}") from None
    if done.status:
        said = done.output + done.errors
        if "externally managed" in said or "externally-managed" in said:
            raise UsageError(
                f"{doing}: the system's packages manage this Python (PEP 668); make an environment "
                "of your own, `python -m venv FOLDER`, and name its Python with --python"
            )
        reason = pip_reason(said) if installer.name == "pip" else _uv_reason(done.errors)
        raise program_error(hide_secrets(f"{doing}: {reason}"))


def _uv_reason(errors: str) -> str:
    """What uv says from its error on; a conflict is a chain of reasons that ends with its cause."""
    said = " ".join(process.CODES.sub("", errors).split())
    return shorten_line(re.sub(r"^.*?(error: |\u00d7 )", "", said)) or "it said nothing"


_PLACES = {
    **dict.fromkeys(("UV_CACHE_DIR", "UV_CONFIG_FILE", "SSL_CERT_FILE", "SSL_CLIENT_CERT"), ""),
    **dict.fromkeys(("UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD_CONSTRAINT"), " "),
    **dict.fromkeys(("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"), " "),
    "UV_FIND_LINKS": ",",
}
"""uv's variables that name files, folders or addresses, and what separates several of them."""


def _absolute_places(environ: Mapping[str, str]) -> dict[str, str]:
    """These variables for another folder: a relative path means what it means in this one."""
    found = {}
    for name, separator in _PLACES.items():
        if value := environ.get(name):
            places = value.split(separator) if separator else [value]
            found[name] = separator.join(map(_absolute_place, places))
    return found


def _absolute_place(text: str) -> str:
    """A path, or NAME=PATH as of an index, with the path made absolute; an address stays."""
    if not text or "://" in text or text.startswith("file:"):
        return text
    name, equals, path = text.rpartition("=")
    return f"{name}{equals}{Path(path).absolute()}"
