"""Imports the packages of a wheel and runs its smoke tests, in the environment it is tried in."""

import ast
import dataclasses
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.interpreters import Interpreter
from torchwheel.smoke import probe_source, trial_environment
from torchwheel.smoke.results import RunFacts, parse_junit, read_probe, read_report, record_of
from torchwheel.smoke.smoke_record import SmokeRecord, TestResult, dump_smoke
from torchwheel.smoke.trial_environment import Environment
from torchwheel_runtime import files, process
from torchwheel_runtime.arch.model import Arch, parse_binary_name
from torchwheel_runtime.console import Progress, show_output
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import sha256, temporary_variables
from torchwheel_runtime.json_files import last_line, parse_json
from torchwheel_runtime.machine.facts import Torch


@dataclasses.dataclass(frozen=True)
class Suite:
    """A folder of smoke tests.

    Attributes:
        digest: hex SHA-256 of all its files.
        functions: by file, the functions that pytest collects there: "test_a", "TestB::test_a".
    """

    digest: str
    functions: Mapping[str, tuple[str, ...]]

    def files(self, chosen: Sequence[str] = ()) -> tuple[str, ...]:
        """Its files with tests; of those `chosen` alone, which may name folders."""
        return tuple(
            name
            for name in self.functions
            if not chosen
            or any(PurePosixPath(name).is_relative_to(PurePosixPath(one)) for one in chosen)
        )


def read_suite(tests: Path) -> Suite:
    """Read a folder of smoke tests; a file that is no Python is a UsageError."""
    functions = {}
    for path in _files(tests):
        if path.suffix == ".py" and (path.stem.startswith("test_") or path.stem.endswith("_test")):
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError) as error:
                raise UsageError(f"{path}: expected Python, found {error}") from error
            functions[path.relative_to(tests).as_posix()] = tuple(_functions(tree.body))
    return Suite(digest_of_tests(tests), {name: of for name, of in functions.items() if of})


def digest_of_tests(tests: Path) -> str:
    """Hex SHA-256 over the names and contents of the files in a folder of smoke tests."""
    digest = hashlib.sha256()
    for path in _files(tests):
        digest.update(f"{path.relative_to(tests).as_posix()}\0{sha256(path)}\n".encode())
    return digest.hexdigest()


def _files(tests: Path) -> Iterator[Path]:
    for path in sorted(tests.rglob("*")):
        parts = path.relative_to(tests).parts
        made = any(part == "__pycache__" or part.startswith(".") for part in parts)
        if path.is_file() and not made:
            yield path


def _functions(body: Sequence[ast.stmt], inside: str = "") -> Iterator[str]:
    """The names of test functions; those that a condition defines are not known."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("test"):
                yield f"{inside}{node.name}"
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _functions(node.body, f"{inside}{node.name}::")


SECONDS = 3600


def import_names(wheel: Wheel) -> tuple[str, ...]:
    """Names that users of the wheel import: top folders with an __init__.py, and top modules."""
    paths = [PurePosixPath(member) for member in wheel.members]
    packages = {p.parts[0] for p in paths if len(p.parts) == 2 and p.name == "__init__.py"}
    modules = {
        p.name.partition(".")[0] for p in paths if len(p.parts) == 1 and p.suffix in (".py", ".so")
    }
    if not packages | modules:
        raise TorchwheelError(f"{wheel.path.name}: no package or module to import in it")
    return tuple(sorted(packages | modules))


def arguments_of_tests(report: Path, tests: str, without_gpu: Sequence[str] | None) -> list[str]:
    """The arguments of probe.py that run the tests in a folder, with pytest's JUnit file.

    `without_gpu` names the files that run if torch finds no GPU; all if empty, none if None.
    """
    chosen = (
        ["--gpu-only"] if without_gpu is None else [f"--without-gpu={name}" for name in without_gpu]
    )
    return [f"--tests={tests}", f"--junit={report}", *chosen]


def run_probe(
    env: Environment, names: Sequence[str], cwd: Path, tests: Sequence[str] = ()
) -> tuple[RunFacts, process.ProcessResult]:
    """Import torch, then each name, then run tests.

    Args:
        env: the environment.
        names: the packages to import.
        cwd: the current folder of the tests; the facts are left beside it.
        tests: the arguments of `arguments_of_tests`; no test runs without them.

    Returns:
        The machine as torch sees it and the imports, and how the process ended.
    """
    file = cwd.parent / "facts.json"
    done = run_python(env, ["-c", probe_source(), f"--facts={file}", *tests, *names], cwd)
    try:
        facts = read_probe(file, env.site)
    except (OSError, MalformedError) as error:
        why = done.last_words("nothing was said")
        raise program_error(
            f"importing torch and {', '.join(names)} ended with status {done.status}: {why}"
        ) from error
    return facts, done


def run_python(env: Environment, arguments: Sequence[str], cwd: Path) -> process.ProcessResult:
    """Run the environment's Python; the caller judges its exit status."""
    # Beside compilers, torch's threads would spend cores on waiting for each other.
    variables = {"OMP_WAIT_POLICY": "passive", **env.environ, **temporary_variables()}
    variables["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        done = process.run([env.python, *arguments], cwd=cwd, env=variables, timeout=SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"smoke: {error}") from error
    show_output(done.output + done.errors)
    return done


_SM = re.compile(r"sm_[1-9]\d{1,2}[af]?")


@dataclasses.dataclass(frozen=True)
class EnvironmentTorch(Torch):
    """The torch of an environment, as probe.py describes it in a process that has imported it.

    Attributes:
        archs: torch's names of the archs that it is compiled for, e.g. "sm_90".
        loaded: file names of the libraries in the process.
    """

    archs: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """E.g. "2.11.0": the files on PyPI have no local version in their names."""
        return self.version.partition("+")[0]

    @property
    def machine_code(self) -> tuple[Arch, ...]:
        """The archs that it has machine code for."""
        return tuple(parse_binary_name(flag) for flag in self.archs if _SM.fullmatch(flag))


def import_torch(env: Environment, cwd: Path) -> EnvironmentTorch:
    """Import torch in an environment and describe it; `cwd` is a folder without a `torch`."""
    done = run_python(env, ["-c", probe_source(), "--torch"], cwd)
    try:
        return parse_json(last_line(done.output), EnvironmentTorch, "torch")
    except MalformedError as error:
        output = done.last_words("it said nothing")
        raise TorchwheelError(f"torch cannot be imported in {env.site}: {output}") from error


OUTPUT_LINES = 30
"""Lines of pytest's output that are shown when a run fails."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a wheel is tried with.

    Attributes:
        tests: the extension's folder of smoke tests; a copy of it is run. None to import the
            packages alone.
        torch: the torch release of the clean environment; None for one that the wheel requires.
        requires: requirements of the tests besides torch.
        without_gpu: test files that run if torch finds no GPU; all if empty, none if None.
        imports: names to import in place of the wheel's packages.
        locks: folder of the locks whose files, by hash, the clean environment has; None to install
            what an index gives for the requirements.
    """

    tests: Path | None
    torch: str | None = None
    requires: Sequence[str] = ("pytest",)
    without_gpu: Sequence[str] | None = ()
    imports: Sequence[str] = ()
    locks: Path | None = None


def smoke(
    wheel: Path,
    trial: Trial,
    *,
    bundled: Sequence[Path],
    record: Path,
    cache: Path,
    progress: Progress,
    junit: Path | None = None,
    here: bool = False,
    python: Interpreter | None = None,
) -> SmokeRecord:
    """Install a wheel and its bundled packages, run its tests on them, write the record.

    Args:
        wheel: The file to try.
        trial: What it is tried with.
        bundled: Wheels that are published with it and installed with it.
        record: File for the JSON record.
        cache: Folder of the cached environments.
        progress: Where to report.
        junit: File for pytest's JUnit report, if wanted.
        here: Use the running interpreter and its torch, for a machine that is offline.
        python: The Python of the clean environment; the running one if not given.

    Returns:
        The record; its `ok` is the verdict.
    """
    tests, without_gpu = trial.tests, trial.without_gpu
    if tests is not None and not tests.is_dir():
        raise UsageError(f"a folder of smoke tests expected at {tests}, which is none")
    wheels = [read_wheel(path) for path in (wheel, *bundled)]
    packages = [name for installed in wheels[1:] for name in import_names(installed)]
    packages = [*(trial.imports or import_names(wheels[0])), *packages]
    with tempfile.TemporaryDirectory(prefix="torchwheel-smoke-") as folder:
        temporary = Path(folder).resolve()
        if here:
            progress.step("installing the wheel for the running Python")
            env = trial_environment.running_environment(wheels, import_names(wheels[0]), temporary)
        else:
            required = trial_environment.base_requirements(
                wheels, trial.torch, trial.requires, python
            )
            base = trial_environment.base_environment(
                cache.resolve(), required, progress, python, locks=trial.locks
            )
            progress.step("installing the wheel")
            env = trial_environment.clean_environment(wheels, base, temporary, python)
        cwd = temporary / "run"
        sources, report, arguments = "", cwd / "junit.xml", []
        cwd.mkdir()
        (cwd / "pytest.ini").write_text("[pytest]\n")
        if tests is not None:
            sources, name = digest_of_tests(tests), tests.resolve().name
            # They run outside the source tree, so that they cannot import from it.
            shutil.copytree(tests, cwd / name, ignore=shutil.ignore_patterns("__pycache__"))
            arguments = arguments_of_tests(report, name, without_gpu)
        ran = f", running {tests.name}" if tests else ""
        progress.step(f"importing {', '.join(packages)}{ran}")
        facts, done = run_probe(env, packages, cwd, arguments)
        if done.status:
            for line in (done.output + done.errors).splitlines()[-OUTPUT_LINES:]:
                progress.say(line)
        if without_gpu is None and facts.machine.gpu is None:
            sources = ""  # imported alone
        results = _read_report(report, junit)
    smoke_record = record_of(wheel, bundled, facts, results, sources, done.status)
    files.write_text(record, dump_smoke(smoke_record))
    return smoke_record


def _read_report(report: Path, junit: Path | None) -> tuple[TestResult, ...]:
    """The results that pytest left, if it did; its file is copied to `junit`."""
    if not report.is_file():
        return ()
    text = read_report(report)
    if junit is not None:
        files.write_text(junit, text)
    return parse_junit(text)
