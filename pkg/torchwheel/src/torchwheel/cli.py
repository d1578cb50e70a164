"""The command line: `torchwheel COMMAND`."""

import argparse
import contextlib
import importlib.metadata
import shlex
import sys
import traceback
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.commands import build, machine, prove, publish
from torchwheel.completions import SHELLS, completions_script
from torchwheel.programs import end_programs_on_signals
from torchwheel_runtime.arguments import (
    Command,
    Parser,
    add_commands,
    add_output_options,
    command,
    option,
)
from torchwheel_runtime.console import prepare_output, run_command, set_output
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import own_temporary_files
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.text import hanging_lines

# What a command needs beside the base of torchwheel is in one of its extras.
EXTRAS = {"sigstore": "evidence", "cryptography": "evidence"}


@command(
    "completions",
    "Print the script by which a shell completes commands and options.",
    option("shell", choices=SHELLS, help="whose script"),
    examples=(
        "completions bash > ~/.local/share/bash-completion/completions/torchwheel",
        "completions zsh > ~/.zfunc/_torchwheel",
        "completions fish > ~/.config/fish/completions/torchwheel.fish",
    ),
    page="reference/sessions.md",
)
def completions(options: argparse.Namespace) -> int:
    """Print the script."""
    print(completions_script(parser(), options.shell), end="")
    return 0


AUDIENCES: Mapping[str, tuple[Command, ...]] = {
    "install and understand wheels": (
        machine.install,
        machine.doctor,
        prove.inspect,
        publish.verify,
        machine.jit,
        machine.cache,
        completions,
    ),
    "build wheels of an extension": (
        build.build,
        build.split,
        machine.new_project,
        machine.adopt,
        build.matrix,
        build.wheels,
        build.kernels,
        build.images,
        build.base_images,
        machine.toolkit,
    ),
    "test and check them": (prove.check, prove.smoke, prove.compat),
    "release them": (
        publish.assemble,
        publish.handover,
        publish.assets,
        publish.index,
        publish.dispatch,
        publish.published,
    ),
}
"""All commands, by what their users are about."""

COMMANDS = tuple(one for commands in AUDIENCES.values() for one in commands)


def parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of `torchwheel COMMAND …`; the result's `command` is the command's entry."""
    top = Parser(
        prog="torchwheel",
        description="Builds, proves, tests and publishes wheels of PyTorch extensions.",
    )
    top.closing = [*_listing(), "", "`torchwheel COMMAND --help` has options and examples."]
    top.add_argument("--version", action="version", version=f"torchwheel {__version__}")
    add_output_options(top)
    add_commands(top, commands, "COMMAND")
    return top


def _listing() -> Iterator[str]:
    """The lines of all commands, with what they need."""
    for audience, commands in AUDIENCES.items():
        yield from ("", f"{audience}:")
        for one in commands:
            needs = f" [{one.extra}]" if one.extra else ""
            yield from hanging_lines(f"    {one.name:<12} ", f"{one.help}{needs}")
    yield from ("", "[pipeline], [evidence]: needs that extra of torchwheel.")


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command. Exit status: 0 done, 1 something failed, 2 the call or matrix is wrong."""
    prepare_output()
    try:
        given = sys.argv[1:] if argv is None else argv
        options = parser(commands).parse_args(given or ["--help"])
    except SystemExit as end:
        status = int(end.code or 0)
        # --help and --version have printed something, too.
        raise SystemExit(run_command("torchwheel", lambda: status)) from None
    if options.debug:
        # Without the colours of newer Pythons, which would be escaped.
        sys.excepthook = traceback.print_exception
    quiet, verbose = (getattr(options, name, False) for name in ("quiet", "verbose"))
    set_output(options.color, quiet=quiet, verbose=verbose)
    chosen: Command = options.command
    return run_command(chosen.name, lambda: _carry_out(chosen, options), debug=options.debug)


def _carry_out(chosen: Command, options: argparse.Namespace) -> int:
    try:
        with end_programs_on_signals(), own_temporary_files():
            return chosen.run(options) if chosen.run else 0
    except ModuleNotFoundError as error:
        # An extension brings what its import needs; what builds wheels is an extra.
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "torchwheel"):
            raise
        fix = f"run {add_extra(EXTRAS.get(missing, 'pipeline'))}"
        raise TorchwheelError(f"{chosen.name} needs {missing}: {fix}") from error


def add_extra(extra: str) -> str:
    """The command that adds an extra to this torchwheel, from where torchwheel itself came.

    PyPI may have a torchwheel of somebody else's. direct_url.json (PEP 610) has the place, unless
    it was an index. By its exact version pip keeps the torchwheel that is installed.
    """
    origin: object = None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError, MalformedError):
        own = importlib.metadata.distribution("torchwheel")
        origin = parse_json(own.read_text("direct_url.json") or "null", object, "direct_url.json")
    name, closing = f"torchwheel[{extra}]", ""
    match origin:
        case {"url": str(url), "dir_info": {**how}} if Path(_path(url)).is_dir():
            wanted = ["-e"] if how.get("editable") else []
            wanted += [f"{_path(url)}[{extra}]"]
        case {"url": str(url), "vcs_info": {"vcs": vcs, "commit_id": commit}, **more}:
            below = f"#subdirectory={more['subdirectory']}" if "subdirectory" in more else ""
            wanted = [f"{name} @ {vcs}+{url}@{commit}{below}"]
        case {"url": str(url), "archive_info": _} if (
            not url.startswith("file:") or Path(_path(url)).is_file()
        ):
            wanted = [f"{name} @ {url}"]
        case _:
            wanted = ["--extra-index-url", "INDEX", f"{name}=={__version__}"]
            closing = ", where INDEX is the index that torchwheel came from"
    return f"`{shlex.join([sys.executable, '-m', 'pip', 'install', *wanted])}`{closing}"


def _path(url: str) -> str:
    """The path of a file: URL."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path)
