"""Runs pip, for this interpreter or another one; a failure is one line."""

import ast
import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.console import show_output
from torchwheel_runtime.errors import MalformedError, TorchwheelError, program_error
from torchwheel_runtime.files import temporary_variables
from torchwheel_runtime.text import hide_secrets, quote
from torchwheel_runtime.versions import is_requirement

_SECONDS = 3600
_DOWNLOAD_SECONDS = 4 * 3600
"""Of one call of pip: it waits as long as a byte comes."""
_OWN = ("PYTHONPATH", "PYTHONHOME")
"""Variables that lead to packages of this process."""
_ELSEWHERE = {
    f"PIP_{name}"
    for name in (
        *("TARGET", "PREFIX", "ROOT", "USER", "PYTHON", "DRY_RUN", "NO_DEPS"),
        *("UPGRADE", "FORCE_REINSTALL", "IGNORE_INSTALLED"),
    )
}
"""Settings with which pip would not install into an environment, not all, or a second time what is
there, such as torch."""
_CRASHED_OR_WRONG_CALL = 2
"""Pip's exit status after an error that it does not expect, or an option that it does not know."""


def run_pip(
    arguments: Sequence[str],
    doing: str,
    *,
    python: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = _DOWNLOAD_SECONDS,
    advice: str = "",
    feature: str = "",
) -> None:
    """Run the pip that goes with torchwheel.

    Args:
        arguments: what follows "pip", e.g. ["install", "--no-deps", …].
        doing: what is being done, for the message.
        python: the interpreter whose environment pip works on; the running one if not given.
        env: all variables of pip; those of this process if not given.
        timeout: seconds after which pip is stopped.
        advice: follows the reason in the message, unless a file has another hash than expected.
        feature: an experimental feature of pip's; a pip that lacks it, or crashes in it, is run
            again without it.
    """
    import pip  # noqa: F401, PLC0415 - where it is missing, this says so in one line

    target = ["--python", str(python)] if python else []
    command = [*process.python_module(sys.executable, "pip"), *target]
    command += ["--disable-pip-version-check", "--no-input"]
    try:
        given = os.environ if env is None else env
        variables = {**given, **temporary_variables(), **home_variables()}
        if python:
            # Else what they lead to counts as installed, and the environment lacks it.
            variables = {name: text for name, text in variables.items() if name not in _OWN}
            variables = own_variables(command, variables)
        use = [f"--use-feature={feature}"] if feature else []
        done = process.run([*command, *arguments, *use], env=variables, timeout=timeout)
        if use and done.status == _CRASHED_OR_WRONG_CALL:
            done = process.run([*command, *arguments], env=variables, timeout=timeout)
    except process.NotRunError as error:
        raise TorchwheelError(f"{doing}: pip cannot be run: {error.reason}") from error
    show_output(done.output + done.errors)
    if done.status:
        raise program_error(f"{doing}: {pip_reason(done.output + done.errors, advice)}")


def own_variables(pip: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a pip that installs into its own environment, and leaves what is there.

    No option of pip takes back a target folder of a settings file. So where a file has such a
    setting, pip gets the other settings of its files as variables, and reads no file.
    """
    # As pip does: an empty variable leaves a file's setting.
    empty = {name for name, text in environ.items() if not text and name.startswith("PIP_")}
    left_out = _ELSEWHERE | empty
    kept = {name: text for name, text in environ.items() if name not in left_out}
    done = process.run([*pip, "config", "list"], env=kept)
    of_files: dict[str, str] = {}
    # In the order in which pip obeys them: those of all commands, then those of `pip install`.
    for line in done.output.splitlines() if done.status == 0 else ():
        key, _, value = line.partition("=")
        section, _, option = key.partition(".")
        if section in ("global", "install"):
            with contextlib.suppress(ValueError, SyntaxError):
                name = f"PIP_{option.upper().replace('-', '_')}"
                of_files[name] = str(ast.literal_eval(value))
    if of_files.keys().isdisjoint(_ELSEWHERE):
        return kept
    of_files = {name: text for name, text in of_files.items() if name not in _ELSEWHERE}
    return {**of_files, **kept, "PIP_CONFIG_FILE": os.devnull}


def home_variables() -> dict[str, str]:
    """A home folder for the pip or uv of a user who has none, without which they end at once."""
    return {"HOME": os.sep} if os.path.expanduser("~") == "~" else {}  # noqa: PTH111 - raises


def checked_requirements(texts: Iterable[str], where: str) -> list[str]:
    """The requirements, sorted; a text that pip would take for an option is refused.

    Raises:
        MalformedError: one is no requirement; `where` names who asks for it.
    """
    found = sorted(texts)
    for text in found:
        if not is_requirement(text):
            reason = f'expected requirements such as "numpy>=2", found {quote(text)}'
            raise MalformedError(where, reason, "nothing was installed")
    return found


def pip_install(
    python: Path,
    packages: Iterable[str | Path],
    *,
    offline: bool,
    doing: str,
    options: Sequence[str] = (),
) -> None:
    """`pip install` into the environment of `python`.

    Args:
        python: its interpreter.
        packages: requirements, and paths of wheels.
        offline: install from files alone, not an index.
        doing: what is being done, for the message.
        options: pip's; nobody else's text may be among them.
    """
    packages = list(packages)
    wheels = [str(path.absolute()) for path in packages if isinstance(path, Path)]
    required = [text for text in packages if isinstance(text, str)]
    # Without --quiet, by which pip leaves out what a conflict is caused by.
    arguments = ["install", *options, *wheels, *checked_requirements(required, doing)]
    env = None
    if offline:
        arguments += ["--no-index", "--no-cache-dir"]
        env = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
        # A config file could name links that --no-index does not switch off.
        env["PIP_CONFIG_FILE"] = os.devnull
    run_pip(arguments, doing, python=python, env=env, timeout=_SECONDS)


def pip_reason(output: str, advice: str = "") -> str:
    """Pip's own ERROR lines, without the general advice that surrounds them; then `advice`."""
    output = process.CODES.sub("", output)
    if "DO NOT MATCH THE HASHES" in output:
        return _hash_mismatch(output)
    lines = process.printed_lines(output)
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    errors = [line for line in errors if "ResolutionImpossible" not in line] or errors
    reason = "; ".join(line.removeprefix("ERROR:").strip() for line in errors)
    _, caused, rest = output.partition("The conflict is caused by:\n")
    if caused:
        causes = [line.strip() for line in rest.partition("\n\n")[0].splitlines()]
        reason = f"{reason.rstrip('.')}: {'; '.join(filter(None, causes))}"
    return hide_secrets(f"{reason or 'pip said nothing'}{advice}")


def _hash_mismatch(output: str) -> str:
    lines = process.printed_lines(output)
    files = [line for line in lines if "from " in line and "#" not in line]
    digests = [line.split()[-1] for line in lines if line.startswith("Got ")]
    file = files[-1].removesuffix(":") if files else "a file"
    return (
        f"hash mismatch: {file} has sha256 {digests[-1] if digests else '?'}, not the one in the "
        "lock; nothing was installed; check the index, or renew the lock if the change is meant"
    )
